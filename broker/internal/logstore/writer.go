package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// segmentBytes is the size of a segment above which the next segment begins.
const segmentBytes = 32 << 20

// segment is a file of the log.
type segment struct {
	number    uint32
	file      vfs.File
	start     int64           // start of the records
	end       int64           // end of the records
	live      int             // number of live messages and documents
	liveBytes int64           // approximate size of them
	deadBytes int64           // size of the tombstones
	targets   map[uint32]bool // other segments to which the tombstones refer
	broken    bool            // a record is unreadable
	reusable  bool            // no backup shares the file
}

func (s *segment) garbage() int64 { return s.end - s.start - s.liveBytes - s.deadBytes }

// writer appends to the newest segment. Only the goroutine of run and Open use it.
type writer struct {
	d       *disk
	active  *segment
	summary *summary
	synced  bool

	recorder syncedRecorder

	// The current frame:
	frame   []byte
	puts    []placed
	removed []placed
	ranges  []span
	dead    []place
	dropped []*segment
	values  map[string]*other // the last change of each document

	droppable bool       // a segment may have become droppable
	obsolete  []*segment // dropped, but not yet removed
	spare     []string   // files of dropped segments, which the next segments overwrite
	cleaning  *cleaning
	room      []chan struct{} // callers of MakeRoom
}

// placed is a message or a document with its old or new place.
type placed struct {
	key       Key
	name      string // of a document
	at        place
	bytes     int64 // State.Bytes of a message
	size      int   // of the record
	transient bool
}

// maxSpare is the maximum capacity of a frame whose memory is reused.
const maxSpare = 4 << 20

// begin starts a frame.
func (w *writer) begin() {
	if cap(w.frame) > maxSpare {
		w.frame, w.puts, w.removed, w.dead = nil, nil, nil, nil
	}
	w.frame = beginFrame(w.frame[:0])
	w.puts, w.removed, w.dead, w.dropped = w.puts[:0], w.removed[:0], w.dead[:0], w.dropped[:0]
	w.ranges = w.ranges[:0]
}

// here returns the place of the next record.
func (w *writer) here() place {
	return place{w.active.number, uint32(w.active.end) + uint32(len(w.frame))}
}

// encode adds the changes of part p to the frame. The argument before is the previous part. It resolves deletions with the
// index, which has all earlier parts.
func (w *writer) encode(g *changeSet, before, p part) {
	for i := before.changes; i < p.changes; i++ {
		c := &g.changes[i]
		k := c.entry.Key
		if c.kind != undone {
			if at, ok := w.d.index.find(k); ok {
				w.dead = append(w.dead, at)
				if c.kind == deletion {
					w.removed = append(w.removed, placed{key: k, at: at, bytes: c.entry.Bytes})
				}
			}
		}
		if c.kind == update || c.kind == put {
			at := w.here()
			size := len(w.frame)
			w.frame = appendMessage(w.frame, &c.entry)
			w.put(placed{key: k, at: at, bytes: c.entry.Bytes, size: len(w.frame) - size, transient: c.entry.Transient})
		}
	}
	for i := before.others; i < p.others; i++ {
		switch o := &g.others[i]; o.kind {
		case rangeDeletion:
			if l := w.d.index.level(o.level.queue, o.level.level); l != nil {
				w.deleteRange(o.level.queue, l, o.after+1, o.before)
			}
		case queueDeletion:
			for _, l := range w.d.index.queues[o.level.queue] {
				w.deleteRange(o.level.queue, l, 0, math.MaxUint64)
			}
		default:
			w.values[o.name] = o
		}
	}
	for name, o := range w.values {
		if at, ok := w.d.index.documents[name]; ok {
			w.dead = append(w.dead, at)
			w.removed = append(w.removed, placed{name: name, at: at})
		}
		if o.kind == documentPut {
			at, size := w.here(), len(w.frame)
			w.frame = appendDocument(w.frame, name, o.value)
			w.put(placed{name: name, at: at, size: len(w.frame) - size})
		}
	}
	clear(w.values)
	w.entomb()
}

// put adds a message or a document, whose record is in the frame, to the summary and to the changes of the index.
func (w *writer) put(p placed) {
	if p.name != "" {
		w.summary.document(p.name, p.at.offset)
	} else {
		w.summary.message(p.key, p.at.offset, p.bytes, p.transient)
	}
	w.puts = append(w.puts, p)
}

// deleteRange deletes the messages of a level for which from <= Key.Order < before.
func (w *writer) deleteRange(queue uint64, l *levelIndex, from, before uint64) {
	for order, at := range l.from(from) {
		if order >= before {
			break
		}
		w.dead = append(w.dead, at)
	}
	w.ranges = append(w.ranges, span{level{queue, l.level}, from, before})
}

// span is a range of orders in a level.
type span struct {
	level
	from, before uint64
}

// removeRange removes a range from the index.
func (w *writer) removeRange(s span) {
	l := w.d.index.level(s.queue, s.level.level)
	for l != nil && l.messages > 0 {
		order, at, ok := l.first(s.from)
		if !ok || order >= s.before {
			return
		}
		w.d.index.remove(keyOf(s.queue, s.level.level, order), l.bytes/int64(l.messages))
		w.dies(at)
	}
}

// entomb adds tombstones for the dead records to the frame.
func (w *writer) entomb() {
	if !slices.IsSortedFunc(w.dead, place.compare) {
		slices.SortFunc(w.dead, place.compare)
	}
	var offsets [256]uint32
	for rest := w.dead; len(rest) > 0; {
		n, segment := 0, rest[0].segment
		for n < min(len(rest), len(offsets)) && rest[n].segment == segment {
			offsets[n] = rest[n].offset
			n++
		}
		w.tombstones(segment, offsets[:n])
		rest = rest[n:]
	}
}

func (w *writer) tombstones(segment uint32, offsets []uint32) {
	before := len(w.frame)
	w.frame = appendTombstones(w.frame, segment, offsets)
	w.active.deadBytes += int64(len(w.frame) - before)
	w.summary.dead = append(w.summary.dead, w.frame[before:]...)
	if segment != w.active.number {
		w.active.targets[segment] = true
	}
}

// write writes the frame, and then applies its changes to the index. The messages are readable, but not yet durable.
func (w *writer) write() error {
	if len(w.frame) == frameHeader {
		return nil
	}
	s := w.active
	if s.end+int64(len(w.frame)) > math.MaxUint32 {
		return errors.New("commit is too large")
	}
	endFrame(w.frame, s.number)
	if err := w.append(w.frame); err != nil {
		return err
	}
	d := w.d
	d.places.Lock()
	defer d.places.Unlock()
	s.end += int64(len(w.frame))
	for _, r := range w.removed {
		switch {
		case r.name != "":
			delete(d.index.documents, r.name)
			w.dies(r.at)
		case d.index.remove(r.key, r.bytes):
			w.dies(r.at)
		}
	}
	for _, r := range w.ranges {
		w.removeRange(r)
	}
	for _, p := range w.puts {
		if p.name != "" {
			if old, ok := d.index.documents[p.name]; ok {
				w.dies(old)
			}
			d.index.documents[p.name] = p.at
		} else if old, ok := d.index.put(p.key, p.at, p.bytes); ok {
			w.dies(old)
		}
		s.live++
		s.liveBytes += int64(p.size)
	}
	for _, old := range w.dropped {
		delete(d.segments, old.number)
		w.obsolete = append(w.obsolete, old)
		w.droppable = true // its tombstones no longer retain others
	}
	return nil
}

// dies counts a record that is no longer live. Its size is estimated, because the index does not have it.
func (w *writer) dies(at place) {
	s := w.d.segments[at.segment]
	if s == nil || s.live == 0 {
		return
	}
	s.liveBytes -= s.liveBytes / int64(s.live)
	if s.live--; s.live == 0 {
		w.droppable = true
	}
}

// append writes b to the end of the active segment. A repeated write continues after the bytes that are already written.
func (w *writer) append(b []byte) error {
	w.synced = false
	return w.d.attempt(func() error {
		n, err := w.active.file.Write(b)
		b = b[n:]
		return err
	})
}

func (w *writer) sync() error {
	if w.synced {
		return nil
	}
	if err := w.active.file.SyncData(); err != nil {
		return err
	}
	w.synced = true
	return nil
}

// roll begins the next segment if the active segment is full.
func (w *writer) roll() error {
	if w.active.end < w.d.segmentBytes || w.active.end == w.active.start {
		return nil
	}
	return w.rollNow()
}

func (w *writer) rollNow() error {
	next, err := w.d.createSegment(w.active.number + 1)
	if err != nil {
		return err
	}
	if err := w.seal(); err != nil {
		return err
	}
	w.use(next)
	w.droppable = true
	return nil
}

// use makes s the active segment.
func (w *writer) use(s *segment) {
	w.d.places.Lock()
	defer w.d.places.Unlock()
	w.d.segments[s.number] = s
	w.active, w.summary, w.synced = s, newSummary(), true
}

// seal completes the active segment.
func (w *writer) seal() error {
	about, err := w.active.file.Stat()
	if err != nil {
		return err
	}
	// The summary must end at the end of the file, which has an unreadable end after a crash, or if it was reused.
	s := w.active
	at := max(s.end, about.Size()-int64(len(w.summary.appendSeal(nil, s.number, 0, uint32(s.end)))))
	text := w.summary.appendSeal(nil, s.number, uint32(at), uint32(s.end))
	err = w.d.attempt(func() error {
		_, err := s.file.WriteAt(text, at)
		return err
	})
	if err != nil {
		return err
	}
	return w.active.file.Sync()
}

// syncError is a failed fsync, which must not be repeated.
type syncError struct{ error }

func (e syncError) Unwrap() error { return e.error }

// createSegment creates a segment durably. Its first frame lists the existing segments.
func (d *disk) createSegment(number uint32) (s *segment, err error) {
	frame := beginFrame(nil)
	for _, n := range slices.Sorted(maps.Keys(d.segments)) {
		frame = binary.AppendUvarint(frame, uint64(n))
	}
	endFrame(frame, number)
	name := d.segmentName(number)
	err = d.attempt(func() error {
		f, err := d.createFile(name)
		if err != nil {
			return err
		}
		if _, err = f.Write(frame); err == nil {
			if err = f.Sync(); err == nil {
				err = syncDir(d.fs, d.logDir)
			}
			if err != nil {
				err = syncError{err}
			}
		}
		if err != nil {
			return errors.Join(err, f.Close(), d.fs.Remove(name))
		}
		s = &segment{number: number, file: f, reusable: true, start: int64(len(frame)), end: int64(len(frame)), targets: make(map[uint32]bool)}
		return nil
	})
	return s, err
}

// createFile creates a file, or reuses the file of a dropped segment. To overwrite a file is cheaper, because the file system
// neither allocates blocks nor records a new size.
func (d *disk) createFile(name string) (vfs.File, error) {
	w := &d.writer
	if n := len(w.spare); n > 0 {
		old := w.spare[n-1]
		w.spare = w.spare[:n-1]
		if err := d.fs.Rename(old, name); err != nil {
			return nil, err
		}
		return d.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	}
	return d.fs.Create(name, vfs.WriteCategoryUnspecified)
}

func (d *disk) segmentName(number uint32) string {
	return d.fs.PathJoin(d.logDir, fmt.Sprintf("%010d%s", number, segmentSuffix))
}

const segmentSuffix = ".seg"
