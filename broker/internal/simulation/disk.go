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
	power *vfs.MemFS // loses what is not synced in a crash
	fs    *faultyFS  // of the broker that runs
	sync  time.Duration
}

func newDisk(l *Life) *Disk {
	return &Disk{l: l, power: vfs.NewCrashableMem(), sync: l.Script.Shape.Sync}
}

// Open implements broker.Store.
func (d *Disk) Open(log *slog.Logger) (store.Store, error) {
	d.mu.Lock()
	d.fs = &faultyFS{FS: d.power, d: d}
	d.fs.changed.L = &d.fs.mu
	fs := d.fs
	d.mu.Unlock()
	opened, err := diskstore.Open(diskstore.Options{Dir: dataDir, Log: log, FS: fs})
	if err != nil {
		return nil, err
	}
	return simulated{opened, fs}, nil
}

// simulated is a store whose MakeRoom is kept apart from a slow disk: Pebble holds a lock that commits want while MakeRoom waits
// for the log.
type simulated struct {
	store.Store
	fs *faultyFS
}

// MakeRoom implements store.Store.
func (s simulated) MakeRoom(ctx context.Context) error {
	if !s.fs.hurry() {
		return nil
	}
	defer s.fs.set(func() { s.fs.fast = false })
	return s.Store.MakeRoom(ctx)
}

// FS returns the file system without faults, to look at it while no broker runs.
func (d *Disk) FS() *vfs.MemFS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.power
}

// cutPower loses the part of what was not synced that a crash loses. The broker that still runs goes on on the old disk,
// which nobody looks at any more.
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

// abandon leaves the disk to a broker that does not let go of it. What that has written stays.
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

// faultyFS is a file system whose writes can be slow, wait, or fail.
type faultyFS struct {
	vfs.FS
	d *Disk

	mu      sync.Mutex
	changed sync.Cond
	hangs   bool
	full    bool
	low     bool
	broken  bool // every sync fails
	bad     bool // one of these has been so
	fast    bool // no fsync takes any time
	waiting int  // fsyncs that take their time
}

// set changes the state under the lock.
func (f *faultyFS) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.bad = f.bad || f.hangs || f.full || f.broken
	f.changed.Broadcast()
}

// release ends all faults but that of a disk that fails, which ends with the broker.
func (f *faultyFS) release() { f.set(func() { f.hangs, f.full, f.low = false, false, false }) }

// struck reports whether the disk was bad at any time since the broker was started.
func (f *faultyFS) struck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}

// failing reports whether the disk fails until the broker is started again.
func (f *faultyFS) failing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// hurry has no write take any time until fast is reset. It reports false if the disk does not answer.
func (f *faultyFS) hurry() bool {
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

// write is called before something is written.
func (f *faultyFS) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full && !f.fast && outsideLocks() {
		return syscall.ENOSPC
	}
	return nil
}

// synced is called before an fsync, and takes its time if the file is a log.
func (f *faultyFS) synced(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if strings.HasSuffix(name, ".log") && outsideLocks() {
		f.waiting++
		if f.d.sync > 0 && !f.fast {
			f.mu.Unlock()
			time.Sleep(f.d.sync)
			f.mu.Lock()
		}
		for f.hangs && !f.fast {
			f.changed.Wait()
		}
		f.waiting--
		f.changed.Broadcast()
	}
	if f.broken {
		return syscall.EIO
	}
	return nil
}

// outsideLocks reports whether the caller is the loop that writes Pebble's log. Others hold locks that somebody waits for while
// they write: in a bubble, time would stand still if that took any.
func outsideLocks() bool {
	var callers [40]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "record.(*LogWriter).flushLoop") {
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
