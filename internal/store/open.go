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
	memTableSize = 16 << 20
	cacheSize    = 8 << 20
)

// Options are where a store is.
type Options struct {
	Dir string
	Log *slog.Logger
	FS  vfs.FS // default: the machine's
}

// Open opens a data directory, which it makes if there is none.
func Open(o Options) (Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	d := &disk{
		fs: o.FS, dir: o.Dir, log: o.Log,
		gathering: gathering{ticket: 1},
		counts:    make(map[level]*count),
		wake:      make(chan struct{}, 1),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		failed:    make(chan struct{}),
	}
	d.progress = sync.NewCond(&d.mu)
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	d.lazy = time.AfterFunc(time.Hour, func() { d.commitNow() })
	d.lazy.Stop()
	go d.run()
	return d, nil
}

func (d *disk) open() error {
	if err := d.fs.MkdirAll(d.dir, 0o700); err != nil {
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
	known, err := d.known()
	if err != nil {
		return err
	}
	options := d.options()
	options.ErrorIfNotExists = known
	d.db, err = pebble.Open(d.fs.PathJoin(d.dir, databaseDir), options)
	switch {
	case err == nil:
	case pebble.IsCorruptionError(err), errors.Is(err, pebble.ErrDBDoesNotExist), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: restore a backup, or move it away to begin with nothing: %w", ErrDamaged, err)
	default:
		return err
	}
	if err = d.mark(known); err != nil {
		_ = d.db.Close()
	}
	return err
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

// known reports whether the directory has a store in it already, of a format that is known.
func (d *disk) known() (bool, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, formatFile))
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
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "lock held") {
		return fmt.Errorf("%w: stop it, or choose another directory", ErrInUse)
	}
	return err
}

// Close implements [Store].
func (d *disk) Close() error {
	close(d.closing)
	<-d.stopped
	d.lazy.Stop()
	defer d.lock.Close()
	if err := d.Err(); err != nil {
		return err // Pebble could wait for ever for what will not happen
	}
	if err := d.db.Delete([]byte{prefixOpen}, pebble.Sync); err != nil {
		return err
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
	if err := d.fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := d.db.Checkpoint(d.fs.PathJoin(dir, databaseDir), pebble.WithFlushedWAL()); err != nil {
		return err
	}
	return writeFormat(d.fs, dir) // last: without it the copy is not taken for one
}
