package simulation

import (
	"log/slog"
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
	return diskstore.Open(diskstore.Options{Dir: dataDir, Log: log, FS: fs})
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
}

// set changes the state under the lock.
func (f *faultyFS) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
}

func (f *faultyFS) release() {
	f.set(func() { f.hangs, f.full, f.low, f.broken = false, false, false, false })
}

// write is called before something is written.
func (f *faultyFS) write() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return syscall.ENOSPC
	}
	return nil
}

// synced is called before an fsync, and takes its time if the file is a log.
func (f *faultyFS) synced(name string) error {
	waits := strings.HasSuffix(name, ".log") && !underLock()
	if waits && f.d.sync > 0 {
		time.Sleep(f.d.sync)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for waits && f.hangs {
		f.changed.Wait()
	}
	if f.broken {
		return syscall.EIO
	}
	return nil
}

// underLock reports whether Pebble holds a lock that others want while it syncs: time would stand still if that took any.
func underLock() bool {
	var callers [40]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "pebble/v2.(*DB).Close") || strings.HasSuffix(f.Function, "pebble/v2.Open") {
			return true
		}
		if !more {
			return false
		}
	}
}

// Create implements vfs.FS.
func (f *faultyFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.write(); err != nil {
		return nil, err
	}
	return f.wrap(name)(f.FS.Create(name, c))
}

// ReuseForWrite implements vfs.FS.
func (f *faultyFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.write(); err != nil {
		return nil, err
	}
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
