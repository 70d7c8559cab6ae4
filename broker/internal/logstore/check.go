package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Report is the result of Check or Salvage.
type Report struct {
	Damage    []Damage
	Queues    []Contents
	Documents []Document
	Aside     string // directory to which Salvage moved the old files; empty if Salvage did not move them
}

// Contents describes the messages of one queue.
type Contents struct {
	Queue    uint64
	Expected int // number of messages according to the summaries; -1 if a summary is unreadable
	Found    int // number of readable messages
}

// errNoData is returned for a directory that is not a data directory.
var errNoData = fmt.Errorf("file %s and directory %s not found", formatFile, logDirName)

// openOffline locks an existing data directory that no broker uses. The result whole reports whether the file FORMAT
// is intact.
func openOffline(o *Options) (d *disk, whole bool, err error) {
	d = newDisk(o)
	whole, err = hasFormat(o.FS, o.Dir)
	if err == nil && !whole {
		if _, err = o.FS.Stat(d.logDir); err != nil {
			err = errNoData
		}
	}
	if errors.Is(err, ErrFormat) {
		text, readErr := readFile(o.FS, o.FS.PathJoin(o.Dir, formatFile))
		if readErr == nil && (!bytes.HasPrefix(text, []byte("reprise ")) || !bytes.HasSuffix(text, []byte("\n"))) {
			err = nil // the content is damaged, rather than the format of another version
		}
	}
	if err == nil {
		if d.lock, err = pebble.LockDirectory(o.Dir, o.FS); err != nil {
			err = inUse(err)
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	return d, whole, nil
}

// readOffline reads the log. If a file is damaged, the index is incomplete.
func (d *disk) readOffline(whole, everything bool) (r *recovery, err error) {
	r = &recovery{fs: d.fs, dir: d.logDir}
	if err := r.read(everything); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return r, err
		}
		r.damaged(d.logDir, "it is missing")
	}
	if !whole {
		r.damaged(d.fs.PathJoin(d.dir, formatFile), "it is missing or damaged")
	}
	d.index, d.segments = r.index, r.segments
	return r, nil
}

// Check verifies a data directory that no process has open, and does not change it. Damage is part of the report: Check
// returns an error only if it cannot check the directory.
func Check(o Options) (report Report, err error) {
	d, whole, err := openOffline(&o)
	if err != nil {
		return report, err
	}
	defer d.lock.Close()
	r, err := d.readOffline(whole, true)
	defer r.close()
	report.Damage = r.damage
	if err != nil || len(r.damage) > 0 {
		return report, err
	}
	if err := d.openNewest(r); err != nil {
		return report, err
	}
	report.Queues = r.queues()
	for doc, err := range d.Documents("") {
		if err != nil {
			return report, err
		}
		report.Documents = append(report.Documents, doc)
	}
	return report, nil
}

func (d *disk) openNewest(r *recovery) (err error) {
	s := r.segments[r.newest.number]
	s.file, err = d.fs.Open(r.newest.path)
	return err
}

// queues returns the number of messages of each queue.
func (r *recovery) queues() (all []Contents) {
	for _, queue := range slices.Sorted(maps.Keys(r.index.queues)) {
		n := 0
		for _, l := range r.index.queues[queue] {
			n += l.messages
		}
		all = append(all, Contents{queue, n, n})
	}
	return all
}

// Survey returns the documents of a data directory that no process has open, and the number of messages in each
// queue. It does not change the directory. If the directory is missing or is not a data directory, both results are
// nil.
func Survey(dir string) (documents []Document, messages map[uint64]int, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	d, whole, err := openOffline(&Options{Dir: dir})
	if errors.Is(err, errNoData) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer d.lock.Close()
	r, err := d.readOffline(whole, false)
	defer r.close()
	if err == nil && len(r.damage) > 0 {
		err = damaged(r.damage)
	}
	if err == nil {
		err = d.openNewest(r)
	}
	if err != nil {
		return nil, nil, err
	}
	messages = make(map[uint64]int)
	for _, q := range r.queues() {
		messages[q.Queue] = q.Found
	}
	for doc, err := range d.Documents("") {
		if err != nil {
			return nil, nil, err
		}
		documents = append(documents, doc)
	}
	return documents, messages, nil
}
