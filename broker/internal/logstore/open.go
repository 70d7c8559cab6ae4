package logstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system of the machine, or a test double that injects errors.
type FS = vfs.FS

// logDirName is the name of the directory of the segments in a data directory.
const logDirName = "log"

// Options configures [Open].
type Options struct {
	Dir string
	Log *slog.Logger
	FS  vfs.FS // default: the file system of the machine

	// Everything makes Open verify all files before it returns.
	Everything bool

	Segment int   // size in bytes above which the next segment begins; default: 32 MiB
	Reserve int64 // size in bytes of the space that is kept for Open; default: 64 MiB
}

func newDisk(o *Options) *disk {
	o.FS = cmp.Or(o.FS, system)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	d := &disk{
		fs: o.FS, dir: o.Dir, logDir: o.FS.PathJoin(o.Dir, logDirName), log: o.Log,
		pending:   changeSet{ticket: 1},
		partBytes: partBytes,
		wake:      make(chan struct{}, 1),
		requests:  make(chan request),
		closing:   make(chan struct{}),
		stopped:   make(chan struct{}),
		failed:    make(chan struct{}),
		damaged:   make(chan struct{}),

		everything:   o.Everything,
		segmentBytes: int64(cmp.Or(o.Segment, segmentBytes)),
		reserve:      cmp.Or(o.Reserve, reserveBytes),
	}
	d.progress = sync.NewCond(&d.mu)
	d.writer = writer{d: d, values: make(map[string]*other)}
	return d
}

// Open opens a data directory, and creates it if it is missing.
func Open(o Options) (Store, error) {
	d := newDisk(&o)
	if err := d.open(); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	d.delayTimer = time.AfterFunc(time.Hour, d.commitNow)
	d.delayTimer.Stop()
	d.running.Store(true)
	go d.run()
	d.commitNow() // drop segments
	return d, nil
}

func (d *disk) open() (err error) {
	if err := makeDir(d.fs, d.dir); err != nil {
		return err
	}
	if _, err := d.isDataDir(); err != nil {
		return err // nothing has been written yet
	}
	if d.lock, err = pebble.LockDirectory(d.dir, d.fs); err != nil {
		return inUse(err)
	}
	defer func() {
		if err != nil {
			_ = d.lock.Close()
		}
	}()
	if err := d.create(); err != nil {
		return err
	}
	if err := d.openLog(); err != nil {
		return err
	}
	if free, err := d.holdReserve(); err == nil && d.low(free) {
		d.log.Warn("disk has no room for a reserve; if it fills up, the broker may not start again until space is free "+
			"(use a larger disk)", "directory", d.dir, "free", free, "required", 2*d.reserve)
	}
	return nil
}

// openLog reads the log and begins a segment.
func (d *disk) openLog() error {
	makePrivate(d.fs, d.logDir)
	if _, err := d.fs.List(d.logDir); err != nil {
		return damaged([]Damage{{d.logDir, describe(err)}})
	}
	r := &recovery{fs: d.fs, dir: d.logDir}
	err := r.read(d.everything)
	if err == nil && len(r.damage) > 0 {
		err = damaged(r.damage)
	}
	if err == nil {
		d.warnClock(d.logDir)
		d.releaseReserve()
		err = d.resume(r)
	}
	if err != nil {
		r.close()
	}
	return err
}

// resume continues a log after recovery. It seals the segment that was the newest, and begins the next one.
func (d *disk) resume(r *recovery) (err error) {
	t := r.newest
	if t.lost > 0 {
		d.log.Warn("end of log dropped; messages that were confirmed immediately before the crash may be missing",
			"file", t.path, "offset", t.end, "bytes", t.lost)
	}
	d.index, d.segments, d.unclean = r.index, r.segments, !t.clean
	for _, name := range r.obsolete {
		if err := d.fs.Remove(name); err != nil {
			return err
		}
	}
	next := t.number + 1
	old := r.segments[t.number]
	if t.isEmpty() {
		delete(d.segments, t.number)
	} else if old.file, err = d.fs.OpenReadWrite(t.path, vfs.WriteCategoryUnspecified); err != nil {
		return err
	}
	fresh, err := d.createSegment(next)
	if err != nil {
		return err
	}
	d.writer.active, d.writer.summary = old, t.summary
	if old.file != nil {
		err = d.writer.seal()
	}
	if err != nil {
		_ = fresh.file.Close()
		return err
	}
	d.writer.use(fresh)
	d.writer.droppable = true
	if err := d.writer.mark(kindOpen); err != nil {
		return err
	}
	if err := d.writer.recorder.open(d, r.synced, false); err != nil {
		return err
	}
	if err := d.writer.recordSynced(true); err != nil {
		return err
	}
	if old.file == nil {
		_ = d.fs.Remove(t.path)
	}
	return nil
}

// mark writes a record that states that the store is open or was closed.
func (w *writer) mark(kind byte) error {
	w.begin()
	w.frame = append(w.frame, kind)
	if err := w.write(); err != nil {
		return err
	}
	return w.sync()
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
		return err
	}
	err := d.closeLog(clean)
	d.end(ErrClosed, err)
	return err
}

// closeLog seals the newest segment. The next segment states that the store is clean.
func (d *disk) closeLog(clean bool) error {
	w := &d.writer
	w.remove()
	w.removeSpare(0)
	if err := w.rollNow(); err != nil {
		return err
	}
	if clean || !d.unclean {
		if err := w.mark(kindClose); err != nil {
			return err
		}
	}
	if w.recorder.timer != nil {
		w.recorder.timer.Stop()
	}
	errs := []error{w.recordSynced(true), w.recorder.close()}
	for _, s := range d.segments {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}

// Dir implements [store.Store].
func (d *disk) Dir() string { return d.dir }

// Free implements [store.Store].
func (d *disk) Free() (uint64, error) {
	usage, err := d.fs.GetDiskUsage(d.dir)
	return usage.AvailBytes, err
}

// makeDir creates a directory and its missing parents, and makes the new directory entries durable.
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

func syncFile(fs vfs.FS, name string) error {
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// format is the content of the file FORMAT in a data directory.
const (
	formatFile = "FORMAT"
	format     = "reprise 3\n"
)

// unfinished is the name suffix of a file or directory that is not yet complete.
const unfinished = ".new"

// create initializes a data directory, unless it already has a log.
//
// It writes the file FORMAT after the log is complete and before it renames the log. A directory with a log therefore always
// has the file FORMAT, so that a directory that has lost this file is not mistaken for a new directory.
func (d *disk) create() error {
	path := d.logDir
	there, err := d.isDataDir()
	if err != nil {
		return err
	}
	if there {
		if _, err := d.fs.Stat(path + unfinished); err == nil {
			return d.rename(path)
		}
		return nil
	}
	if err := d.fs.RemoveAll(path + unfinished); err != nil {
		return err
	}
	// Mode 0700: other users of the machine may have access to the parent directory, but must not read message bodies.
	if err := d.fs.MkdirAll(path+unfinished, 0o700); err != nil {
		return err
	}
	fresh := &disk{fs: d.fs, logDir: path + unfinished}
	s, err := fresh.createSegment(1)
	if err != nil {
		return err
	}
	w := &writer{d: fresh, active: s, summary: newSummary()}
	if err := errors.Join(w.mark(kindClose), s.file.Close(), w.createSynced()); err != nil { // a new store is clean
		return err
	}
	if err := writeFormat(d.fs, d.dir); err != nil {
		return err
	}
	return d.rename(path)
}

// isDataDir reports whether the directory is a data directory. If it is not, and create cannot turn it into one,
// isDataDir returns an error. It does not change the directory.
func (d *disk) isDataDir() (there bool, err error) {
	if there, err = hasFormat(d.fs, d.dir); !there && err == nil {
		err = d.checkEmpty()
	}
	return there, err
}

func (d *disk) rename(path string) error {
	if err := d.fs.Rename(path+unfinished, path); err != nil {
		return err
	}
	return syncDir(d.fs, d.dir)
}

// checkEmpty returns an error if the directory contains files that must not be in a new data directory.
func (d *disk) checkEmpty() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == "LOCK" || strings.HasSuffix(name, unfinished) || strings.HasSuffix(name, ".sock")
	})
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w (found %s without %s; restore a backup, or use an empty or a new directory)",
		ErrDamaged, names[0], formatFile)
}

// hasFormat reports whether a directory has the file FORMAT. It returns an error if the format in the file is not
// supported.
func hasFormat(fs vfs.FS, dir string) (bool, error) {
	name := fs.PathJoin(dir, formatFile)
	text, err := readFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if string(text) == format {
		return true, nil
	}
	return false, fmt.Errorf("%w: %s has %q, and this version reads %q; use the version of Reprise that wrote it, or if the file "+
		"is damaged, restore a backup", ErrFormat, name, strings.TrimSpace(string(text[:min(100, len(text))])), strings.TrimSpace(format))
}

// writeFormat writes the file FORMAT atomically.
func writeFormat(fs vfs.FS, dir string) error {
	name := fs.PathJoin(dir, formatFile)
	f, err := fs.Create(name+unfinished, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(format))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+unfinished, name); err != nil {
		return err
	}
	return syncDir(fs, dir)
}
