package logstore

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// recordReader reads records of a segment.
type recordReader struct {
	file   vfs.File
	end    int64  // of the records
	window []byte // part of the file
	at     uint32 // its offset
}

const (
	// aheadBytes limits a read, unless a single record is longer.
	aheadBytes = 128 << 10
	// gapBytes is the distance of two records that are read together, with the bytes between them.
	gapBytes = 8 << 10
	// tailBytes is how much is read at the offset of a record whose size is unknown.
	tailBytes = 2 << 10
)

// read returns the record at the first of some offsets, and its header. If it has to read the file, it reads the following
// records, too, as far as they are near.
func (r *recordReader) read(offsets []uint32) ([]byte, error) {
	offset := offsets[0]
	for want := 0; ; {
		if in := int(offset) - int(r.at); in >= 0 && in < len(r.window) {
			_, _, size, err := parseRecord(r.window[in:])
			if err == nil {
				return r.window[in : in+size], nil
			}
			if !errors.Is(err, errShort) {
				return nil, err
			}
			want = size
		}
		if want == 0 {
			last := offset
			for _, next := range offsets[1:] {
				if next <= last || next-last > gapBytes || next-offset > aheadBytes {
					break
				}
				last = next
			}
			want = int(last-offset) + tailBytes
		}
		want = int(min(int64(want), r.end-int64(offset)))
		if want <= 0 || r.at == offset && len(r.window) >= want {
			return nil, errRecord // the record ends after the records of the segment
		}
		if cap(r.window) < want {
			r.window = make([]byte, want)
		}
		r.window, r.at = r.window[:want], offset
		if _, err := r.file.ReadAt(r.window, int64(offset)); err != nil {
			r.window = nil
			return nil, err
		}
	}
}

// Load implements [store.Store].
func (d *disk) Load(queue uint64, l uint8, after uint64, n, bytes int) (all []Loaded, err error) {
	d.reading.RLock()
	defer d.reading.RUnlock()
	var orders []uint64
	var offsets []uint32
	var segments []*segment
	var ends []int64
	d.places.RLock()
	if x := d.index.level(queue, l); x != nil {
		for order, at := range x.from(after + 1) {
			s := d.segments[at.segment]
			orders, offsets = append(orders, order), append(offsets, at.offset)
			segments, ends = append(segments, s), append(ends, s.end)
			if len(orders) == n {
				break
			}
		}
	}
	d.places.RUnlock()
	var r recordReader
	run := 0 // end of the records in the same segment
	for i, s := range segments {
		if i == run {
			for run < len(segments) && segments[run] == s {
				run++
			}
			r = recordReader{file: s.file, end: ends[i], window: r.window[:0]}
		}
		raw, err := r.read(offsets[i:run])
		var m Loaded
		if err == nil {
			m, err = parseMessage(raw[recordHeader:])
		}
		if err == nil && m.Key != keyOf(queue, l, orders[i]) {
			err = errRecord
		}
		if err != nil {
			return all, d.unreadable(s.number, err)
		}
		m.Message = slices.Clone(m.Message)
		all = append(all, m)
		if bytes -= len(m.Message); bytes < 0 {
			break
		}
	}
	return all, nil
}

func (d *disk) unreadable(segment uint32, err error) error {
	if errors.Is(err, ErrDamaged) {
		d.recordDamage(d.segmentName(segment), err)
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return fmt.Errorf("cannot read data directory %s: %s: %w", d.dir, d.segmentName(segment), err)
}

// recordDamage logs, once, that a file of the open store is damaged, and closes d.damaged.
func (d *disk) recordDamage(file string, err error) {
	d.damageOnce.Do(func() {
		d.log.Error("data directory is damaged: "+advice, "directory", d.dir, "file", file, "error", err)
		close(d.damaged)
	})
}

// Damaged implements [store.Store].
func (d *disk) Damaged() <-chan struct{} { return d.damaged }

// Levels implements [store.Store].
func (d *disk) Levels(queue uint64) (all []Level, err error) {
	d.places.RLock()
	defer d.places.RUnlock()
	for _, l := range d.index.queues[queue] {
		all = append(all, Level{Level: l.level, Messages: l.messages, Bytes: l.bytes, Last: l.last()})
	}
	slices.SortFunc(all, func(a, b Level) int { return int(a.Level) - int(b.Level) })
	return all, nil
}

// Queues implements [store.Store].
func (d *disk) Queues() ([]uint64, error) {
	d.places.RLock()
	defer d.places.RUnlock()
	return slices.Sorted(maps.Keys(d.index.queues)), nil
}

// Documents implements [store.Store].
func (d *disk) Documents(prefix string) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		d.places.RLock()
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(d.index.documents)), func(name string) bool { return !strings.HasPrefix(name, prefix) })
		d.places.RUnlock()
		for _, name := range names {
			doc, ok, err := d.document(name)
			if ok && !yield(doc, err) || err != nil {
				return
			}
		}
	}
}

func (d *disk) document(name string) (doc Document, ok bool, err error) {
	d.reading.RLock()
	defer d.reading.RUnlock()
	d.places.RLock()
	at, ok := d.index.documents[name]
	s := d.segments[at.segment]
	if !ok {
		d.places.RUnlock()
		return doc, false, nil
	}
	r := recordReader{file: s.file, end: s.end}
	d.places.RUnlock()
	raw, err := r.read([]uint32{at.offset})
	if err == nil {
		doc, err = parseDocument(raw[recordHeader:])
	}
	if err != nil {
		err = d.unreadable(at.segment, err)
	}
	return doc, true, err
}
