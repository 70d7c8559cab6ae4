package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// format is what is written into a data directory's file of that name. A version that does not know it leaves the
// directory alone.
const (
	formatFile = "FORMAT"
	format     = "reprise 1\n"
)

// databaseDir is where Pebble's files are in a data directory.
const databaseDir = "pebble"

// What Pebble may take of memory: two memtables at a time, and the blocks it has read. Messages that are deleted before
// their memtable is full are in no table ever.
const (
	memTableSize = 8 << 20
	cacheSize    = 8 << 20
)

// Options are where a store is.
type Options struct {
	Dir string
	Log *slog.Logger
	FS  vfs.FS // default: the machine's

	// Look says that nothing is to be done with what is in there: if the store was not closed in order the last time, it is
	// not this time either.
	Look bool
}

// Open opens a data directory, which it makes if there is none.
func Open(o Options) (Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	d := &disk{
		dir: o.Dir, log: o.Log, look: o.Look,
		gathering: gathering{ticket: 1},
		counts:    make(map[level]*count),
		wake:      make(chan struct{}, 1),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		failed:    make(chan struct{}),
	}
	d.fs = &guard{FS: o.FS, d: d, within: o.FS.PathJoin(o.Dir, databaseDir)}
	d.progress = sync.NewCond(&d.mu)
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	d.fs.armed.Store(true)
	d.lazy = time.AfterFunc(time.Hour, d.commitNow)
	d.lazy.Stop()
	go d.run()
	return d, nil
}

func (d *disk) open() error {
	if err := makeDir(d.fs, d.dir); err != nil {
		return err
	}
	lock, err := pebble.LockDirectory(d.dir, d.fs)
	if err != nil {
		return inUse(err)
	}
	if err := d.openLocked(); err != nil {
		_ = lock.Close()
		return err
	}
	d.lock = lock
	return nil
}

func (d *disk) openLocked() error {
	known, err := known(d.fs, d.dir)
	if err != nil {
		return err
	}
	options := d.options()
	options.ErrorIfNotExists = known
	path := d.fs.PathJoin(d.dir, databaseDir)
	if known {
		if err := checkManifest(d.fs, path); err != nil {
			return damaged(err)
		}
	}
	d.db, err = pebble.Open(path, options)
	if err == nil && !known {
		// A new database begins its log in an old format, in which damage looks like the end of the log.
		if err = d.db.Close(); err == nil {
			d.db, err = pebble.Open(path, d.options())
		}
	}
	if err != nil {
		// Pebble does not always say when it is damage that it has found; the system always gives a number.
		if errno, ok := errors.AsType[syscall.Errno](err); ok && errno != syscall.ENOENT {
			return err
		}
		return damaged(err)
	}
	if err = d.mark(known); err == nil {
		return nil
	}
	_ = d.db.Close()
	if pebble.IsCorruptionError(err) {
		err = damaged(err)
	}
	return err
}

func damaged(err error) error {
	return fmt.Errorf("%w: restore a backup, or move it away to begin with nothing: %w", ErrDamaged, err)
}

// mark writes down that the store is open. For a new one, the format comes first and is there from then on.
func (d *disk) mark(known bool) error {
	_, closer, err := d.db.Get([]byte{prefixOpen})
	switch {
	case err == nil:
		d.unclean = true
		_ = closer.Close()
	case !errors.Is(err, pebble.ErrNotFound):
		return err
	}
	if err := d.db.Set([]byte{prefixOpen}, nil, pebble.Sync); err != nil {
		return err
	}
	if known {
		return nil
	}
	return writeFormat(d.fs, d.dir)
}

// known reports whether a directory has a store in it already, of a format that is known.
func known(fs vfs.FS, dir string) (bool, error) {
	f, err := fs.Open(fs.PathJoin(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 100))
	if err == nil && string(text) != format {
		err = fmt.Errorf("%w: it is %q, and this is %q; use the version of Reprise that wrote it",
			ErrFormat, strings.TrimSpace(string(text)), strings.TrimSpace(format))
	}
	return err == nil, err
}

func writeFormat(fs vfs.FS, dir string) error {
	// There is either no such file or a whole one.
	temporary := fs.PathJoin(dir, formatFile+".new")
	f, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(format))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(temporary, fs.PathJoin(dir, formatFile)); err != nil {
		return err
	}
	return syncDir(fs, dir)
}

// makeDir makes a directory, with those above it, so that they are there after a crash.
func makeDir(fs vfs.FS, dir string) error {
	_, err := fs.Stat(dir)
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := makeDir(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	f, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *disk) options() *pebble.Options {
	o := &pebble.Options{
		FS:                 d.fs,
		Logger:             pebbleLog{d},
		FormatMajorVersion: pebble.FormatValueSeparation,
		CacheSize:          cacheSize,
		MemTableSize:       memTableSize,
		// Whoever reads what is damaged gets an error; the rest can be read.
		EventListener: &pebble.EventListener{DataCorruption: func(c pebble.DataCorruptionInfo) {
			d.log.Error("the data directory is damaged: restore a backup", "directory", d.dir, "file", c.Path, "error", c.Details)
		}},
	}
	// What is in a queue is written once, read once and deleted: bodies stay where they were written first.
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 0.5,
		}
	}
	for i := range o.Levels {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.FastestCompression }
	}
	return o
}

func inUse(err error) error {
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held") {
		return fmt.Errorf("%w: stop it, or choose another directory", ErrInUse)
	}
	return err
}

// Close implements [Store].
func (d *disk) Close() error {
	close(d.closing)
	select {
	case <-d.stopped:
	case <-d.failed:
	}
	d.lazy.Stop()
	defer d.lock.Close()
	if err := d.Err(); err != nil {
		return err // and Pebble would wait for what will not happen
	}
	d.fs.armed.Store(false)
	if !d.look || !d.unclean {
		if err := d.db.Delete([]byte{prefixOpen}, pebble.Sync); err != nil {
			return err
		}
	}
	return d.db.Close()
}

// Backup implements [Store].
func (d *disk) Backup(dir string) error {
	d.mu.Lock()
	t := d.gathering.ticket
	d.mu.Unlock()
	if err := d.Wait(t); err != nil {
		return err
	}
	if _, err := d.fs.Stat(dir); err == nil {
		return fmt.Errorf("%s is there already: name a directory to be made", dir)
	}
	if err := makeDir(d.fs, dir); err != nil {
		return err
	}
	if err := d.db.Checkpoint(d.fs.PathJoin(dir, databaseDir), pebble.WithFlushedWAL()); err != nil {
		return err
	}
	return writeFormat(d.fs, dir) // last: without it the copy is not taken for one
}
