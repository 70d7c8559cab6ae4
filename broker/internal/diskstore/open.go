package diskstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// databaseDir is the name of Pebble's directory in a data directory.
const databaseDir = "pebble"

// Options configures [Open], [Check] and [Salvage].
type Options struct {
	Dir string
	Log *slog.Logger
	FS  vfs.FS // default: the file system of the machine

	// Everything makes Open verify all files before it returns, without a time limit.
	Everything bool

	// MemTable is the size in bytes above which messages move from the log to a table. Default: 8 MiB. Tests use a small
	// size, so that few messages cause compactions.
	MemTable int
	Reserve  int64 // size in bytes of the space that is kept for Open; default: 64 MiB
}

// Open opens a data directory, and creates it if it is missing. If a write fails during Open, the same process cannot
// open the directory again.
func Open(o Options) (Store, error) {
	o.FS = cmp.Or(o.FS, system)
	d := &disk{
		dir: o.Dir, log: o.Log,
		pending:   changeSet{ticket: 1},
		counts:    make(map[uint64][]*count),
		partBytes: partBytes,
		wake:      make(chan struct{}, 1),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		failed:    make(chan struct{}),
		damaged:   make(chan struct{}),

		everything: o.Everything,
		memTable:   o.MemTable,
		reserve:    cmp.Or(o.Reserve, reserveBytes),
	}
	d.fs = &guard{FS: o.FS, d: d}
	d.progress = sync.NewCond(&d.mu)
	if err := d.catchWriteError(d.open); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	d.delayTimer = time.AfterFunc(time.Hour, d.commitNow)
	d.delayTimer.Stop()
	d.running.Store(true)
	go d.run()
	return d, nil
}

// catchWriteError runs write. If writing to the disk fails, write never returns (see [guard]), and catchWriteError
// returns the cause of the failure.
func (d *disk) catchWriteError(write func() error) error {
	done := make(chan error, 1)
	go func() { done <- write() }()
	select {
	case err := <-done:
		return err
	case <-d.failed:
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.cause
	}
}

func (d *disk) open() error {
	if err := makeDir(d.fs, d.dir); err != nil {
		return err
	}
	if _, err := d.isDataDir(); err != nil {
		return err // nothing has been written yet
	}
	lock, err := pebble.LockDirectory(d.dir, d.fs)
	if err != nil {
		return inUse(err)
	}
	d.lock = lock
	err = d.create()
	if err == nil {
		err = d.openDatabase()
	}
	if err == nil {
		err = d.mark()
	}
	if err != nil {
		_ = lock.Close()
		return err
	}
	if free, err := d.holdReserve(); err == nil && d.low(free) {
		d.log.Warn("disk has no room for a reserve; if it fills up, the broker may not start again until space is free "+
			"(use a larger disk)", "directory", d.dir, "free", free, "required", 2*d.reserve)
	}
	return nil
}

func (d *disk) openDatabase() (err error) {
	path := d.fs.PathJoin(d.dir, databaseDir)
	makePrivate(d.fs, path)
	v, err := d.examine(path, d.everything)
	if err != nil {
		return err
	}
	d.warnClock(path)
	d.releaseReserve()
	if err := d.track(path, v); err != nil {
		return err
	}
	options := d.options()
	options.ErrorIfNotExists = true
	if d.db, err = pebble.Open(path, options); err != nil {
		d.fs.tracker.end()
		return openError(err)
	}
	return nil
}

// track starts a tracker, which keeps the inventory up to date.
func (d *disk) track(path string, v inventory) (err error) {
	fs := d.fs.FS
	if !v.sealed {
		if err := v.complete(fs, path); err != nil {
			return err
		}
	}
	t, err := newTracker(fs, path, v)
	if err != nil {
		return err
	}
	t.update = func() {
		err := t.refresh()
		switch {
		case err == nil || errors.Is(err, os.ErrClosed):
		case full(err):
			d.fs.logFull(err)
			t.scheduleRetry()
		default:
			d.fail(err)
		}
	}
	d.fs.tracker = t
	return t.write(false)
}

// openError classifies an error from opening a database.
func openError(err error) error {
	// Pebble does not mark all errors that indicate damage, but an error from the operating system always contains an
	// errno.
	errno, ok := errors.AsType[syscall.Errno](err)
	if held := inUse(err); errors.Is(held, ErrInUse) || ok && errno != syscall.ENOENT {
		return held
	}
	return unreadable(err)
}

// mark records in the database that the store is open. If the previous process did not remove its record, mark sets
// unclean.
func (d *disk) mark() error {
	_, closer, err := d.db.Get([]byte{prefixOpen})
	switch {
	case err == nil:
		d.unclean = true
		err = closer.Close()
	case errors.Is(err, pebble.ErrNotFound):
		err = d.db.Set([]byte{prefixOpen}, nil, pebble.Sync)
	}
	if err == nil {
		return nil
	}
	_ = d.db.Close()
	if pebble.IsCorruptionError(err) {
		err = unreadable(err)
	}
	return err
}

func inUse(err error) error {
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held") {
		return fmt.Errorf("%w (stop that process, or use another directory; a broker with a failed disk keeps the directory until it exits)", ErrInUse)
	}
	return err
}

// Close implements [store.Store].
func (d *disk) Close(clean bool) error {
	d.running.Store(false)
	close(d.closing)
	select {
	case <-d.stopped:
	case <-d.failed:
	}
	d.delayTimer.Stop()
	defer d.lock.Close()
	if err := d.Err(); err != nil {
		d.fs.tracker.stop()
		return err // otherwise Pebble would wait forever
	}
	err := d.catchWriteError(func() error { return d.closeDatabase(clean) })
	d.end(ErrClosed, err)
	return err
}

func (d *disk) closeDatabase(clean bool) error {
	if clean || !d.unclean {
		if err := d.db.Delete([]byte{prefixOpen}, pebble.Sync); err != nil {
			return err
		}
	}
	if err := d.db.Close(); err != nil {
		return err
	}
	if err := d.fs.tracker.seal(); err != nil {
		return err
	}
	d.fs.tracker.end()
	return nil
}
