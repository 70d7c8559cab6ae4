package simulation

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// dataDir is the data directory on a Disk.
const dataDir = "data"

// Disk is the disk of a broker. It implements broker.Store.
type Disk struct {
	l *Life

	mu    sync.Mutex
	power *vfs.MemFS // after a crash, unsynced data may be missing
	fs    *faultyFS  // used by the running broker

	sync, compaction time.Duration // as in Shape
}

func newDisk(l *Life) *Disk {
	shape := l.Script.Shape
	return &Disk{l: l, power: vfs.NewCrashableMem(), sync: shape.Sync, compaction: shape.Compaction}
}

// smallTable is the size of a table if Shape.Compaction is not 0.
const smallTable = 32 << 10

// Open implements broker.Store.
func (d *Disk) Open(log *slog.Logger) (store.Store, error) {
	d.mu.Lock()
	d.fs = &faultyFS{FS: d.power, d: d}
	d.fs.changed.L = &d.fs.mu
	fs := d.fs
	d.mu.Unlock()
	o := diskstore.Options{Dir: dataDir, Log: log, FS: fs}
	if d.compaction > 0 {
		o.MemTable = smallTable
	}
	opened, err := diskstore.Open(o)
	if err != nil {
		return nil, err
	}
	return simulatedStore{opened, fs}, nil
}

// simulatedStore is a store whose MakeRoom ignores the delays of a slow disk. While MakeRoom waits for the log, Pebble holds
// a lock that commits need.
type simulatedStore struct {
	store.Store
	fs *faultyFS
}

// MakeRoom implements store.Store.
func (s simulatedStore) MakeRoom(ctx context.Context) error {
	if !s.fs.removeDelays() {
		return nil
	}
	defer s.fs.set(func() { s.fs.fast = false })
	return s.Store.MakeRoom(ctx)
}

// FS returns the file system without the injected faults. Use it only while the broker is down.
func (d *Disk) FS() *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.power
}

// cutPower discards a random part of the unsynced data, as a power failure does. The old broker keeps using the old
// disk, but its writes do not affect the new disk.
func (d *Disk) cutPower(s Step) {
	random := s.Random()
	percent := oneOf(random, 0, 0, 50, 100, random.IntN(101))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.power = d.power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
	if d.fs != nil {
		d.fs.release()
	}
}

// abandon replaces the disk with a copy, because the old broker does not release the disk. The copy contains all writes of
// the old broker.
func (d *Disk) abandon() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.power = d.power.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))})
	d.fs.release()
}

func (d *Disk) running() *faultyFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fs
}

// faultyFS is a file system with slow, blocked or failing writes.
type faultyFS struct {
	vfs.FS
	d *Disk

	mu      sync.Mutex
	changed sync.Cond
	hangs   bool
	full    bool
	low     bool
	broken  bool // every sync fails
	bad     bool // the disk has hung, been full or failed since the start
	fast    bool // fsyncs return without a delay
	waiting int  // number of fsyncs in progress

	compacting int // number of fsyncs of compactions in progress
}

// set changes the state under the lock.
func (f *faultyFS) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.bad = f.bad || f.hangs || f.full || f.broken
	f.changed.Broadcast()
}

// release removes all faults except failing fsyncs, which continue until the broker stops.
func (f *faultyFS) release() { f.set(func() { f.hangs, f.full, f.low = false, false, false }) }

// hadFault reports whether the disk has hung, been full or failed since the broker started.
func (f *faultyFS) hadFault() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}

// failing reports whether every fsync fails until the broker restarts.
func (f *faultyFS) failing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// isCompacting reports whether a compaction waits for an fsync.
func (f *faultyFS) isCompacting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compacting > 0
}

// removeDelays removes the delay of all fsyncs until fast is reset, and waits for the fsyncs in progress. It returns false
// if the disk hangs, is full or fails.
func (f *faultyFS) removeDelays() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hangs || f.full || f.broken {
		return false
	}
	f.fast = true
	for f.waiting > 0 {
		f.changed.Wait()
	}
	return true
}

// write runs before each write. If the disk is full, it returns an error for writes to Pebble's log.
func (f *faultyFS) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full && !f.fast && outsideLocks() {
		return syscall.ENOSPC
	}
	return nil
}

// synced runs before each fsync and applies the faults. An fsync of Pebble's log, or of a table
// during a compaction, takes the configured time.
func (f *faultyFS) synced(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case strings.HasSuffix(name, ".log") && outsideLocks():
		f.waiting++
		f.delay(f.d.sync)
		for f.hangs && !f.fast {
			f.changed.Wait()
		}
		f.waiting--
		f.changed.Broadcast()
	case (strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")) && calledBy("pebble/v2.(*DB).compact1"):
		f.waiting++
		f.compacting++
		f.delay(f.d.compaction)
		f.compacting--
		f.waiting--
		f.changed.Broadcast()
	}
	if f.broken {
		return syscall.EIO
	}
	return nil
}

// delay waits for a duration, unless fast is set. The caller must hold mu.
func (f *faultyFS) delay(d time.Duration) {
	if d > 0 && !f.fast {
		f.mu.Unlock()
		time.Sleep(d)
		f.mu.Lock()
	}
}

// outsideLocks reports whether the caller is the loop that writes Pebble's log. Other callers write while they hold locks
// that other goroutines wait for. If such a write took time, the virtual clock would stop.
func outsideLocks() bool { return calledBy("record.(*LogWriter).flushLoop") }

// calledBy reports whether a function whose name has the suffix is on the stack.
func calledBy(suffix string) bool {
	var callers [40]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, suffix) {
			return true
		}
		if !more {
			return false
		}
	}
}

// Create implements vfs.FS.
func (f *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(name)(f.FS.Create(name, c))
}

// ReuseForWrite implements vfs.FS.
func (f *faultyFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(to)(f.FS.ReuseForWrite(from, to, c))
}

// OpenReadWrite implements vfs.FS.
func (f *faultyFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return f.wrap(name)(f.FS.OpenReadWrite(name, c, o...))
}

// OpenDir implements vfs.FS.
func (f *faultyFS) OpenDir(name string) (vfs.File, error) { return f.wrap(name)(f.FS.OpenDir(name)) }

// GetDiskUsage implements vfs.FS.
func (f *faultyFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: 1 << 39}
	if f.low || f.full {
		u.AvailBytes = 1 << 10
	}
	u.UsedBytes = u.TotalBytes - u.AvailBytes
	return u, nil
}

// Unwrap implements vfs.FS.
func (f *faultyFS) Unwrap() vfs.FS { return f.FS }

func (f *faultyFS) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &faultyFile{File: file, fs: f, name: name}, nil
	}
}

type faultyFile struct {
	vfs.File
	fs   *faultyFS
	name string
}

// Write implements vfs.File.
func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.fs.write(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// Sync implements vfs.File.
func (f *faultyFile) Sync() error {
	if err := f.fs.synced(f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *faultyFile) SyncData() error {
	if err := f.fs.synced(f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *faultyFile) SyncTo(n int64) (bool, error) {
	if err := f.fs.synced(f.name); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}
