package logstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

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

// Salvage creates a log from the readable records of a data directory that no process has open, and moves the old log to a
// subdirectory. The function repair, if not nil, receives the readable documents, and returns them together with
// replacements for missing documents. The report contains the expected and the found number of messages of each queue.
//
// If tombstones are unreadable, deleted messages reappear, and the broker redelivers them.
func Salvage(o Options, repair func([]Document) []Document) (report Report, err error) {
	d, whole, err := openOffline(&o)
	if err != nil {
		return report, err
	}
	defer d.lock.Close()
	r, err := d.readOffline(whole, true)
	r.close()
	if err != nil {
		return report, err
	}
	made := d.logDir + ".salvage"
	if _, err := d.fs.Stat(d.logDir); errors.Is(err, os.ErrNotExist) {
		return report, d.install(made)
	}
	report.Damage = r.damage
	s := &salvage{recovery: *r, expected: make(map[uint64]map[Key]bool), found: make(map[Key]place), documents: make(map[string]place)}
	if err := s.scan(); err != nil {
		return report, err
	}
	if err := d.fs.RemoveAll(made); err != nil {
		return report, err
	}
	if err := s.rewrite(o, made, repair, &report); err != nil {
		return report, err
	}
	report.Aside = d.fs.PathJoin(o.Dir, "damaged-"+time.Now().UTC().Format("20060102T150405Z"))
	if err := makeDir(d.fs, report.Aside); err != nil {
		return report, err
	}
	if err := d.fs.Rename(d.logDir, d.fs.PathJoin(report.Aside, logDirName)); err != nil {
		return report, err
	}
	return report, errors.Join(syncDir(d.fs, report.Aside), d.install(made))
}

// install gives a new log its final name, and completes the data directory.
func (d *disk) install(made string) error {
	if err := d.fs.Rename(made, d.logDir); err != nil {
		return err
	}
	if err := syncDir(d.fs, d.dir); err != nil {
		return err
	}
	return writeFormat(d.fs, d.dir)
}

// salvage contains the readable part of a log.
type salvage struct {
	recovery
	contents  map[uint32][]byte
	numbers   []uint32
	uncounted bool // a summary is unreadable
	expected  map[uint64]map[Key]bool
	found     map[Key]place
	documents map[string]place
}

// scan finds all valid records, also in frames that are not valid, and all tombstones.
func (s *salvage) scan() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	dropped := make(map[uint32]bool)
	if s.newest != nil {
		for _, name := range s.obsolete {
			dropped[numberOf(s.fs.PathBase(name))] = true
		}
	}
	for _, name := range names {
		if n := numberOf(name); n > 0 && !dropped[n] {
			s.numbers = append(s.numbers, n)
		}
	}
	slices.Sort(s.numbers)
	for _, d := range s.damage {
		if numberOf(s.fs.PathBase(d.File)) > 0 {
			s.uncounted = true
		}
	}
	dead := make(map[place]bool)
	for pass := range 2 { // the tombstones first
		for _, n := range s.numbers {
			if err := s.visit(n, pass == 0, dead); err != nil {
				return err
			}
		}
	}
	return nil
}

func numberOf(name string) (number uint32) {
	_, _ = fmt.Sscanf(name, "%d"+segmentSuffix, &number)
	return number
}

// visit visits the records of a segment.
func (s *salvage) visit(n uint32, tombstones bool, dead map[place]bool) error {
	content, err := readFile(s.fs, s.path(n))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	v := salvageVisitor{s, n, tombstones, dead}
	if f, summary, err := s.openSegment(n); err == nil {
		_ = f.Close()
		if summary != nil {
			_ = summary.visitDead(v.tombstones)
			_ = summary.visitLive(func(k Key, offset uint32, _ int64, transient bool) {
				if !tombstones && !transient && !dead[place{n, offset}] {
					s.expect(k)
				}
			}, func(string, uint32) {})
			content = content[:min(int(summary.end), len(content))]
		}
	}
	for at := 0; at < len(content); {
		if payload, size := readFrame(content[at:], n); size > 0 {
			if at > 0 {
				_ = visitFrame(payload, at+frameHeader, v)
			}
			at += size
		} else if kind, record, size, err := parseRecord(content[at:]); err == nil {
			v.record(kind, record, uint32(at))
			at += size
		} else {
			at++
		}
	}
	return nil
}

func (s *salvage) expect(k Key) {
	if s.expected[k.Queue] == nil {
		s.expected[k.Queue] = make(map[Key]bool)
	}
	s.expected[k.Queue][k] = true
}

// salvageVisitor implements [visitor].
type salvageVisitor struct {
	*salvage
	number uint32
	first  bool // the tombstones only
	dead   map[place]bool
}

func (v salvageVisitor) record(kind byte, content []byte, offset uint32) {
	if kind == kindMessage {
		if m, err := parseMessage(content); err == nil {
			v.message(m.Key, offset, m.Bytes, m.Transient)
		}
	} else if d, err := parseDocument(content); err == nil {
		v.document(d.Name, offset)
	}
}

func (v salvageVisitor) message(k Key, offset uint32, _ int64, transient bool) {
	if at := (place{v.number, offset}); !v.first && !transient && !v.dead[at] {
		v.found[k] = at
		v.expect(k)
	}
}

func (v salvageVisitor) document(name string, offset uint32) {
	if at := (place{v.number, offset}); !v.first && !v.dead[at] {
		v.documents[name] = at
	}
}

func (v salvageVisitor) tombstones(segment uint32, offsets []uint32) {
	for _, offset := range offsets {
		v.dead[place{segment, offset}] = true
	}
}

func (salvageVisitor) drop(uint32) {}
func (salvageVisitor) closed()     {}

// raw is a message that is already encoded.
type raw []byte

func (r raw) Append(dst []byte) []byte { return append(dst, r...) }

// rewrite writes the salvaged records to a new log. The new log is unclean, because it is unknown which messages were
// delivered before the damage.
func (s *salvage) rewrite(o Options, made string, repair func([]Document) []Document, report *Report) error {
	to := newDisk(&o)
	to.logDir = made
	if err := makeDir(to.fs, made); err != nil {
		return err
	}
	first, err := to.createSegment(1)
	if err != nil {
		return err
	}
	to.index = index{queues: make(map[uint64][]*levelIndex), documents: make(map[string]place)}
	to.segments = make(map[uint32]*segment)
	to.unclean = true
	w := &to.writer
	w.use(first)
	if err := w.createSynced(); err != nil {
		return err
	}
	if err := w.recorder.open(to, w.recorder.last, false); err != nil {
		return err
	}
	g := &changeSet{}
	flush := func() error {
		g.cut()
		err := to.commit(g)
		*g = changeSet{}
		return err
	}
	found := make(map[uint64]int)
	keys := slices.SortedFunc(maps.Keys(s.found), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Order, b.Order))
	})
	for _, k := range keys {
		content, err := s.content(s.found[k])
		if err != nil {
			return err
		}
		m, err := parseMessage(content)
		if err != nil {
			return err
		}
		found[k.Queue]++
		g.changes = append(g.changes, change{put, Entry{Key: m.Key, State: m.State, Message: raw(m.Message)}})
		if g.bytes += int64(len(content)); g.bytes > 4<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.documents)) {
		content, err := s.content(s.documents[name])
		if err != nil {
			return err
		}
		doc, err := parseDocument(content)
		if err != nil {
			return err
		}
		report.Documents = append(report.Documents, doc)
	}
	if repair != nil {
		report.Documents = repair(report.Documents)
	}
	for _, doc := range report.Documents {
		g.others = append(g.others, other{kind: documentPut, name: doc.Name, value: doc.Value})
	}
	for _, queue := range slices.Sorted(maps.Keys(s.expected)) {
		c := Contents{queue, len(s.expected[queue]), found[queue]}
		if s.uncounted && c.Expected == c.Found {
			c.Expected = -1
		}
		report.Queues = append(report.Queues, c)
	}
	if err := flush(); err != nil {
		return err
	}
	return to.closeLog(false)
}

// content returns the content of a record.
func (s *salvage) content(at place) ([]byte, error) {
	f, err := s.fs.Open(s.path(at.segment))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	about, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r := recordReader{file: f, end: about.Size()}
	b, err := r.read([]uint32{at.offset})
	if err != nil {
		return nil, err
	}
	return b[recordHeader:], nil
}
