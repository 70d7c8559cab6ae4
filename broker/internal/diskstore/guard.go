package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable/blob"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/reprisemq/reprise/internal/loglimit"
)

// fullRetryDelay is the delay before a guard retries a write to a full disk.
const fullRetryDelay = time.Second

// guard is the file system that Pebble writes to. After a failed write, Pebble terminates the process or panics. The
// guard therefore hides failed writes from Pebble. A write to a full disk waits for space, except during Open and
// Close. After any other error, the store fails and the write never returns. As a result, data that may not be on disk
// is never confirmed, the data in memory and on disk remains readable, and publishers receive an error instead of a
// closed connection.
//
// The guard affects only writes to the data directory. A write to a backup, which is in another directory, can return
// an error.
type guard struct {
	vfs.FS
	d          *disk
	tracker    *tracker       // nil while the database is being created or examined
	loggedFull loglimit.Limit // log messages about a full disk
}

// trackedName returns the base name of a file in the directory of the database. If path is not in this directory, or if
// there is no tracker, ok is false.
func (g *guard) trackedName(path string) (name string, ok bool) {
	if g.tracker == nil || filepath.Dir(filepath.Clean(path)) != filepath.Clean(g.tracker.dir) {
		return "", false
	}
	return filepath.Base(path), true
}

// contains reports whether name is the path of the data directory or a path inside it.
func (g *guard) contains(name string) bool {
	name, within := filepath.Clean(name), filepath.Clean(g.d.dir)
	rest, found := strings.CutPrefix(name, within)
	return found && (rest == "" || os.IsPathSeparator(rest[0]))
}

// shouldRetry handles the result of a write, and reports whether the caller must retry. It returns false if the write
// has succeeded. If the disk is full, shouldRetry waits and returns true, unless the store is being opened or closed.
// In all other cases, the store fails and shouldRetry never returns.
func (g *guard) shouldRetry(err error) (again bool) {
	switch {
	case err == nil:
		return false
	case full(err):
		if g.awaitSpace(err) {
			return true
		}
	}
	g.d.fail(err)
	blockForever()
	return false
}

// full reports whether an error means that the disk is full.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// awaitSpace waits before a retry and returns true. It returns false if the caller must report the error instead (see
// wait).
func (g *guard) awaitSpace(err error) bool {
	g.logFull(err)
	return g.wait()
}

// wait waits for fullRetryDelay and returns true. It returns false if the store is being opened or closed, or if it
// fails during the wait.
func (g *guard) wait() bool {
	if !g.d.running.Load() {
		return false
	}
	select {
	case <-g.d.closing:
		return false
	case <-g.d.failed: // GiveUp or a failed write
		return false
	case <-time.After(fullRetryDelay):
		return true
	}
}

// isTemporary reports whether an error from opening a file is temporary, for example because too many files are open.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN)
}

// logFull logs at most once per minute that the disk is full.
func (g *guard) logFull(err error) {
	if _, due := g.loggedFull.Due(); due {
		g.d.log.Error("disk is full; messages are not confirmed until space is free", "directory", g.d.dir, "error", err)
	}
}

// blockForever never returns.
func blockForever() { select {} }

func (g *guard) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if !g.contains(name) {
		return open()
	}
	for {
		f, err := open()
		if err == nil {
			return &guardedFile{File: f, g: g}, nil
		}
		if isTemporary(err) && g.wait() {
			continue // safe, because the failed call has not written any data
		}
		if !g.shouldRetry(err) {
			return nil, err
		}
	}
}

// Create implements [vfs.FS].
func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if base, ok := g.trackedName(name); ok && isMarker(base) {
		// The marker makes Pebble use another MANIFEST, which the inventory must already list.
		if err := g.tracker.syncNames(); err != nil {
			return nil, g.synced(err)
		}
		g.inventory()
	}
	f, err := g.file(name, func() (vfs.File, error) { return g.FS.Create(name, category) })
	f = g.trackFile(name, f)
	if base, ok := g.trackedName(name); err == nil && ok && isManifest(base) {
		opened := f.(*guardedFile)
		if opened.copy, err = g.Create(g.PathJoin(g.PathDir(name), manifestCopy+base), category); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, err
}

// ReuseForWrite implements [vfs.FS].
func (g *guard) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if base, ok := g.trackedName(from); ok {
		g.tracker.unlist(base)
		g.inventory()
	}
	f, err := g.file(to, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, category) })
	return g.trackFile(to, f), err
}

// trackFile registers a new file with the tracker, if the inventory must list the file.
func (g *guard) trackFile(name string, f vfs.File) vfs.File {
	if opened, ok := f.(*guardedFile); ok {
		if base, ok := g.trackedName(name); ok && listed(base) {
			opened.name, opened.t = base, g.tracker.created(base)
		}
	}
	return f
}

// Open implements [vfs.FS]. It checks value files before it opens them, because Pebble panics if a value file is
// missing or does not end correctly.
func (g *guard) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if base, ok := g.trackedName(name); ok && isBlob(base) {
		if err := checkBlob(g.FS, name); err != nil {
			g.d.recordDamage(name, err)
			return nil, fmt.Errorf("%w: %s: %s", ErrDamaged, name, describe(err))
		}
	}
	return g.FS.Open(name, options...)
}

// checkBlob returns an error if a value file is missing or does not end correctly.
func checkBlob(fs vfs.FS, name string) error {
	f, err := fs.Open(name)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil // Pebble returns this error when it opens the file
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

// OpenDir implements [vfs.FS]. Pebble opens directories only to sync them.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.file(name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
	if opened, ok := f.(*guardedFile); ok && g.tracker != nil && filepath.Clean(name) == filepath.Clean(g.tracker.dir) {
		opened.dir = true
	}
	return f, err
}

// Remove implements [vfs.FS]. It defers the removal of a listed file until the inventory no longer lists the file.
func (g *guard) Remove(name string) error {
	if base, ok := g.trackedName(name); ok && listed(base) {
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
	if !g.contains(to) {
		return g.FS.Rename(from, to)
	}
	for again := true; again; again = g.shouldRetry(err) {
		err = g.FS.Rename(from, to)
	}
	old, ok1 := g.trackedName(from)
	name, ok2 := g.trackedName(to)
	if err == nil && ok1 && ok2 {
		g.tracker.renamed(old, name)
	}
	return err
}

// Unwrap implements [vfs.FS].
func (g *guard) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file that a guard has opened.
type guardedFile struct {
	vfs.File
	g    *guard
	name string
	t    *trackedFile // nil if the inventory must not list the file
	dir  bool         // the directory of the database
	copy vfs.File     // copy of the file, if it is a MANIFEST; otherwise nil
}

// Write implements [vfs.File]. A retry continues after the bytes that are already written.
func (f *guardedFile) Write(b []byte) (written int, err error) {
	if f.copy != nil {
		if _, err := f.copy.Write(slices.Clone(b)); err != nil {
			return 0, err
		}
	}
	for again := true; again; again = f.g.shouldRetry(err) {
		rest, n := b[written:], 0
		var all extent
		if f.t != nil {
			all = f.t.written.add(rest) // computed before Write, because Write may overwrite b
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
func (f *guardedFile) WriteAt([]byte, int64) (int, error) {
	return 0, errors.ErrUnsupported // Pebble does not call WriteAt, and the checksum covers only appended data
}

// Sync implements [vfs.File]. It does not retry, even on a full disk, because the operating system may have dropped
// the unwritten pages. A second sync would then succeed without writing them.
func (f *guardedFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements [vfs.File].
func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

// Close implements [vfs.File].
func (f *guardedFile) Close() error {
	err := f.File.Close()
	if f.copy != nil {
		err = errors.Join(err, f.copy.Close())
	}
	return err
}

func (f *guardedFile) sync(do func() error) error {
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
		f.g.inventory() // list all files to which the MANIFEST will refer
	}
	written := f.t.written
	err := f.g.synced(do())
	f.g.tracker.synced(f.t, written)
	return err
}

// SyncTo implements [vfs.File].
func (f *guardedFile) SyncTo(length int64) (whole bool, err error) {
	whole, err = f.File.SyncTo(length)
	return whole, f.g.synced(err)
}

func (g *guard) synced(err error) error {
	if err != nil {
		g.d.fail(err)
		blockForever()
	}
	return err
}
