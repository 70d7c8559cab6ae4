package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

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
	complained atomic.Int64 // when, in Unix seconds
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
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		if g.awaitRoom(err) {
			return true
		}
	}
	g.d.fail(err)
	park()
	return false
}

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
			return &guarded{f, g}, nil
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
	return g.file(name, func() (vfs.File, error) { return g.FS.Create(name, category) })
}

// ReuseForWrite implements [vfs.FS].
func (g *guard) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(to, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, category) })
}

// OpenDir implements [vfs.FS]. Directories are opened to be synced.
func (g *guard) OpenDir(name string) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
}

// Rename implements [vfs.FS].
func (g *guard) Rename(from, to string) (err error) {
	if !g.has(to) {
		return g.FS.Rename(from, to)
	}
	for again := true; again; again = g.survive(err) {
		err = g.FS.Rename(from, to)
	}
	return err
}

// Unwrap implements [vfs.FS].
func (g *guard) Unwrap() vfs.FS { return g.FS }

// guarded is a file of a guard's.
type guarded struct {
	vfs.File
	g *guard
}

// Write implements [vfs.File]. What was written of it before the disk was full stays written.
func (f *guarded) Write(b []byte) (written int, err error) {
	for again := true; again; again = f.g.survive(err) {
		var n int
		n, err = f.File.Write(b[written:])
		written += n
	}
	return written, err
}

// WriteAt implements [vfs.File].
func (f *guarded) WriteAt(b []byte, offset int64) (n int, err error) {
	for again := true; again; again = f.g.survive(err) {
		n, err = f.File.WriteAt(b, offset)
	}
	return n, err
}

// Sync implements [vfs.File]. It is not tried again, even when the disk was full: the system may have dropped what it could
// not write, and say next time that all is well.
func (f *guarded) Sync() error { return f.g.synced(f.File.Sync()) }

// SyncData implements [vfs.File].
func (f *guarded) SyncData() error { return f.g.synced(f.File.SyncData()) }

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
