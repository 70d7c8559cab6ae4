package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// roomAgain is how long a write waits that found the disk full before it is tried again.
const roomAgain = time.Second

// guard is the file system that Pebble writes to. Pebble cannot go on after a failed write, and ends the process, or panics
// with locks released, when it meets one. So it meets none: a write that finds the disk full waits until there is room, and
// any other error ends the store and does not return. Nothing that was in doubt is taken for written, what is in memory
// and on disk can still be read, and publishers are told instead of cut off.
//
// That holds for what is in the data directory. A backup elsewhere may fail.
type guard struct {
	vfs.FS
	d          *disk
	tracker    *tracker     // nil: the database is being made or examined
	complained atomic.Int64 // when, in Unix seconds
}

// tracks returns the name of a file in the directory of the database, if there is a tracker.
func (g *guard) tracks(path string) (name string, ok bool) {
	if g.tracker == nil || filepath.Dir(filepath.Clean(path)) != filepath.Clean(g.tracker.dir) {
		return "", false
	}
	return filepath.Base(path), true
}

// has reports whether a file is in the data directory, or is that.
func (g *guard) has(name string) bool {
	name, within := filepath.Clean(name), filepath.Clean(g.d.dir)
	rest, found := strings.CutPrefix(name, within)
	return found && (rest == "" || os.IsPathSeparator(rest[0]))
}

// survive deals with what came of a write. It reports whether it is to be tried again; if not, it has succeeded, or the
// error is one to be returned.
func (g *guard) survive(err error) (again bool) {
	switch {
	case err == nil:
		return false
	case full(err):
		if g.awaitRoom(err) {
			return true
		}
	}
	g.d.fail(err)
	park()
	return false
}

// full reports whether an error says that the disk has no room.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// awaitRoom waits a while, unless the store is being opened or closed: then there is somebody who would rather be told.
func (g *guard) awaitRoom(err error) bool {
	g.complain(err)
	return g.wait()
}

// wait reports whether it has waited, and the store is still in use.
func (g *guard) wait() bool {
	if !g.d.running.Load() {
		return false
	}
	select {
	case <-g.d.closing:
		return false
	case <-g.d.failed: // given up
		return false
	case <-time.After(roomAgain):
		return true
	}
}

// passing tells the errors for which a file cannot be opened now and can be later: others, clients among them, have too many.
func passing(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN)
}

// complain logs that the disk is full, once a minute.
func (g *guard) complain(err error) {
	now := time.Now().Unix()
	if last := g.complained.Load(); now-last >= 60 && g.complained.CompareAndSwap(last, now) {
		g.d.log.Error("the disk is full: nothing is confirmed until there is room", "directory", g.d.dir, "error", err)
	}
}

// park keeps a goroutine for ever that must not go on.
func park() { select {} }

func (g *guard) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if !g.has(name) {
		return open()
	}
	for {
		f, err := open()
		if err == nil {
			return &guarded{File: f, g: g}, nil
		}
		if passing(err) && g.wait() {
			continue // nothing has been written
		}
		if !g.survive(err) {
			return nil, err
		}
	}
}

// Create implements [vfs.FS].
func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if base, ok := g.tracks(name); ok && isMarker(base) {
		// From now on another MANIFEST counts.
		if err := g.tracker.syncNames(); err != nil {
			return nil, g.synced(err)
		}
		g.inventory()
	}
	f, err := g.file(name, func() (vfs.File, error) { return g.FS.Create(name, category) })
	f = g.begin(name, f)
	if base, ok := g.tracks(name); err == nil && ok && isManifest(base) {
		opened := f.(*guarded)
		if opened.copy, err = g.Create(g.PathJoin(g.PathDir(name), manifestCopy+base), category); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, err
}

// ReuseForWrite implements [vfs.FS].
func (g *guard) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if base, ok := g.tracks(from); ok {
		g.tracker.forget(base)
		g.inventory()
	}
	f, err := g.file(to, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, category) })
	return g.begin(to, f), err
}

// begin has the tracker follow a file that is going to be written.
func (g *guard) begin(name string, f vfs.File) vfs.File {
	if opened, ok := f.(*guarded); ok {
		if base, ok := g.tracks(name); ok && listed(base) {
			opened.name, opened.t = base, g.tracker.created(base)
		}
	}
	return f
}

// Open implements [vfs.FS]. Pebble panics when it opens a value file that is missing or has no valid end.
func (g *guard) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if base, ok := g.tracks(name); ok && isBlob(base) {
		if err := checkBlob(g.FS, name); err != nil {
			g.d.harmed(name, err)
			return nil, fmt.Errorf("%w: %s: %s", ErrDamaged, name, describe(err))
		}
	}
	return g.FS.Open(name, options...)
}

// checkBlob reports by an error whether Pebble would take a value file for damaged when it opens the file.
func checkBlob(fs vfs.FS, name string) error {
	f, err := fs.Open(name)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil // Pebble returns it
	}
	readable, err := objstorageprovider.NewFileReadable(f, fs, objstorageprovider.NewReadaheadConfig(), name)
	if err != nil {
		_ = f.Close()
		return nil
	}
	defer readable.Close()
	_, err = blob.NewFileReader(context.Background(), readable, blob.FileReaderOptions{})
	if pebble.IsCorruptionError(err) {
		return err
	}
	return nil
}

// OpenDir implements [vfs.FS]. Directories are opened to be synced.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.file(name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
	if opened, ok := f.(*guarded); ok && g.tracker != nil && filepath.Clean(name) == filepath.Clean(g.tracker.dir) {
		opened.dir = true
	}
	return f, err
}

// Remove implements [vfs.FS]. A file of the database is there until the inventory does not list it any more.
func (g *guard) Remove(name string) error {
	if base, ok := g.tracks(name); ok && listed(base) {
		g.tracker.remove(base)
		if isManifest(base) {
			g.tracker.remove(manifestCopy + base)
		}
		return nil
	}
	return g.FS.Remove(name)
}

// Rename implements [vfs.FS].
func (g *guard) Rename(from, to string) (err error) {
	if !g.has(to) {
		return g.FS.Rename(from, to)
	}
	for again := true; again; again = g.survive(err) {
		err = g.FS.Rename(from, to)
	}
	old, ok1 := g.tracks(from)
	name, ok2 := g.tracks(to)
	if err == nil && ok1 && ok2 {
		g.tracker.renamed(old, name)
	}
	return err
}

// Unwrap implements [vfs.FS].
func (g *guard) Unwrap() vfs.FS { return g.FS }

// guarded is a file of a guard's.
type guarded struct {
	vfs.File
	g    *guard
	name string
	t    *tracked // nil: the inventory does not list it
	dir  bool     // it is the directory of the database
	copy vfs.File // of a MANIFEST; nil: it has none
}

// Write implements [vfs.File]. What was written of it before the disk was full stays written.
func (f *guarded) Write(b []byte) (written int, err error) {
	if f.copy != nil {
		if _, err := f.copy.Write(slices.Clone(b)); err != nil {
			return 0, err
		}
	}
	for again := true; again; again = f.g.survive(err) {
		rest, n := b[written:], 0
		var all extent
		if f.t != nil {
			all = f.t.written.add(rest) // before Write, which may use the room of b
		}
		n, err = f.File.Write(rest)
		switch {
		case f.t == nil:
		case n == len(rest):
			f.t.written = all
		default:
			f.t.written = f.t.written.add(rest[:n])
		}
		written += n
	}
	return written, err
}

// WriteAt implements [vfs.File].
func (f *guarded) WriteAt([]byte, int64) (int, error) {
	return 0, errors.ErrUnsupported // Pebble does not use it, and the checksum of the file would be lost
}

// Sync implements [vfs.File]. It is not tried again, even when the disk was full: the system may have dropped what it could
// not write, and say next time that all is well.
func (f *guarded) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements [vfs.File].
func (f *guarded) SyncData() error { return f.sync(f.File.SyncData) }

// Close implements [vfs.File].
func (f *guarded) Close() error {
	err := f.File.Close()
	if f.copy != nil {
		err = errors.Join(err, f.copy.Close())
	}
	return err
}

func (f *guarded) sync(do func() error) error {
	switch {
	case f.dir:
		names := f.g.tracker.unnamed()
		if err := f.g.synced(do()); err != nil {
			return err
		}
		f.g.tracker.named(names)
		return nil
	case f.t == nil:
		return f.g.synced(do())
	}
	if isManifest(f.name) {
		f.g.inventory() // has all files that the MANIFEST is going to refer to
	}
	written := f.t.written
	err := f.g.synced(do())
	f.g.tracker.synced(f.t, written)
	return err
}

// SyncTo implements [vfs.File].
func (f *guarded) SyncTo(length int64) (whole bool, err error) {
	whole, err = f.File.SyncTo(length)
	return whole, f.g.synced(err)
}

func (g *guard) synced(err error) error {
	if err != nil {
		g.d.fail(err)
		park()
	}
	return err
}
