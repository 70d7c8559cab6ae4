package logstore

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// place is the position of a record: its segment and its offset in the file.
type place struct{ segment, offset uint32 }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.segment, q.segment), cmp.Compare(p.offset, q.offset))
}

// index has the places of the live messages and documents.
type index struct {
	queues    map[uint64][]*levelIndex
	documents map[string]place
}

// levelIndex has the places of the messages of one level, in chunks that are sorted by order. No chunk is empty.
type levelIndex struct {
	level    uint8
	chunks   []*chunk
	messages int
	bytes    int64

	loose   []*chunk // chunks that were packed, oldest first
	decoded *chunk   // the packed chunk that [index.find] has decoded last
	entries []entryAt
}

// chunkLimit is the maximum number of messages in a chunk. Tests change it.
var chunkLimit = 256

// chunk has consecutive messages. Orders are relative to base, to save memory. A full chunk is packed, unless it is the first
// or the last of its level, until a message in it is removed or changes its place.
type chunk struct {
	base    uint64
	entries []entryAt // nil if packed
	packed  []byte
	end     uint32 // order of the last entry; only if packed
}

// pack encodes the entries: difference of the orders, of the segments, and of the offsets.
func (c *chunk) pack() {
	if c.packed != nil {
		return
	}
	b := make([]byte, 0, 4*len(c.entries))
	var last entryAt
	for _, e := range c.entries {
		b = binary.AppendUvarint(b, uint64(e.order-last.order))
		b = binary.AppendVarint(b, int64(e.segment)-int64(last.segment))
		b = binary.AppendVarint(b, int64(e.offset)-int64(last.offset))
		last = e
	}
	c.end = last.order
	c.packed, c.entries = slices.Clip(slices.Clone(b)), nil
}

// list returns the entries. The caller must not change them.
func (c *chunk) list() []entryAt {
	if c.packed == nil {
		return c.entries
	}
	entries := make([]entryAt, 0, chunkLimit)
	var e entryAt
	for r := (reader{rest: c.packed}); len(r.rest) > 0; {
		e.order += uint32(r.number())
		e.segment += uint32(unzigzag(r.number()))
		e.offset += uint32(unzigzag(r.number()))
		entries = append(entries, e)
	}
	return entries
}

// maxLoose is the maximum number of chunks of a level that stay unpacked after a change. Tests change it.
var maxLoose = 64

// unpack makes the entries of a chunk changeable.
func (l *levelIndex) unpack(c *chunk) {
	if c.packed == nil {
		return
	}
	c.entries, c.packed = c.list(), nil
	l.decoded, l.entries = nil, nil // the chunk may change, and be packed again
	if l.loose = append(l.loose, c); len(l.loose) > maxLoose {
		if l.loose[0] != l.chunks[0] && l.loose[0] != c {
			l.loose[0].pack()
		}
		l.loose = l.loose[1:]
	}
}

type entryAt struct {
	order uint32
	place
}

func (c *chunk) last() uint64 {
	if c.packed != nil {
		return c.base + uint64(c.end)
	}
	return c.base + uint64(c.entries[len(c.entries)-1].order)
}

// search returns the index of the first of the entries whose order is at least order.
func (c *chunk) search(entries []entryAt, order uint64) int {
	if order <= c.base+uint64(entries[0].order) {
		return 0
	}
	i, _ := slices.BinarySearchFunc(entries, order, func(e entryAt, order uint64) int { return cmp.Compare(c.base+uint64(e.order), order) })
	return i
}

// level returns a level of a queue, or nil.
func (x *index) level(queue uint64, l uint8) *levelIndex {
	for _, i := range x.queues[queue] {
		if i.level == l {
			return i
		}
	}
	return nil
}

func (x *index) find(k Key) (p place, ok bool) {
	l := x.level(k.Queue, k.Level)
	if l == nil {
		return p, false
	}
	ci := l.chunkOf(k.Order)
	if ci == len(l.chunks) {
		return p, false
	}
	c := l.chunks[ci]
	entries := c.entries
	if c.packed != nil {
		if l.decoded != c {
			l.decoded, l.entries = c, c.list()
		}
		entries = l.entries
	}
	i := c.search(entries, k.Order)
	if c.base+uint64(entries[i].order) != k.Order {
		return p, false
	}
	return entries[i].place, true
}

// put sets the place of a message. If the message is not new, it returns its old place.
func (x *index) put(k Key, at place, bytes int64) (old place, replaced bool) {
	l := x.level(k.Queue, k.Level)
	if l == nil {
		l = &levelIndex{level: k.Level}
		x.queues[k.Queue] = append(x.queues[k.Queue], l)
	}
	if old, replaced = l.put(k.Order, at); !replaced {
		l.messages++
		l.bytes += bytes
	}
	return old, replaced
}

// remove removes a message, and reports whether it was there.
func (x *index) remove(k Key, bytes int64) bool {
	l := x.level(k.Queue, k.Level)
	if l == nil || !l.remove(k.Order) {
		return false
	}
	l.messages--
	l.bytes -= bytes
	if l.messages == 0 {
		x.queues[k.Queue] = slices.DeleteFunc(x.queues[k.Queue], func(other *levelIndex) bool { return other == l })
		if len(x.queues[k.Queue]) == 0 {
			delete(x.queues, k.Queue)
		}
	}
	return true
}

// chunkOf returns the index of the first chunk whose last order is at least order.
func (l *levelIndex) chunkOf(order uint64) int {
	switch n := len(l.chunks); {
	case n == 0 || order > l.chunks[n-1].last(): // a new message
		return n
	case order <= l.chunks[0].last(): // the oldest message
		return 0
	}
	i, _ := slices.BinarySearchFunc(l.chunks, order, func(c *chunk, order uint64) int { return cmp.Compare(c.last(), order) })
	return i
}

// find returns the position of a message, or the position at which it must be inserted, and unpacks the chunk.
func (l *levelIndex) find(order uint64) (ci, i int, ok bool) {
	ci = l.chunkOf(order)
	if ci == len(l.chunks) {
		return ci, 0, false
	}
	c := l.chunks[ci]
	l.unpack(c)
	i = c.search(c.entries, order)
	return ci, i, i < len(c.entries) && c.base+uint64(c.entries[i].order) == order
}

func (l *levelIndex) put(order uint64, at place) (old place, replaced bool) {
	ci, i, ok := l.find(order)
	if ok {
		e := &l.chunks[ci].entries[i]
		old, e.place = e.place, at
		return old, true
	}
	if ci == len(l.chunks) && ci > 0 {
		ci--
		l.unpack(l.chunks[ci])
		i = len(l.chunks[ci].entries)
	}
	switch {
	case len(l.chunks) == 0:
		l.chunks = append(l.chunks, &chunk{base: order})
	case order < l.chunks[ci].base: // before the first message of the level or of the chunk
		l.chunks = slices.Insert(l.chunks, ci, &chunk{base: order})
	case order-l.chunks[ci].base > math.MaxUint32:
		ci++
		l.chunks = slices.Insert(l.chunks, ci, &chunk{base: order})
		i = 0
	case len(l.chunks[ci].entries) == chunkLimit && i == chunkLimit:
		if ci > 0 {
			l.chunks[ci].pack()
		}
		ci++
		l.chunks = slices.Insert(l.chunks, ci, &chunk{base: order})
		i = 0
	case len(l.chunks[ci].entries) == chunkLimit:
		c := l.chunks[ci]
		rest := &chunk{base: c.base, entries: slices.Clone(c.entries[chunkLimit/2:])}
		c.entries = slices.Clone(c.entries[:chunkLimit/2])
		l.chunks = slices.Insert(l.chunks, ci+1, rest)
		if i > chunkLimit/2 {
			ci, i = ci+1, i-chunkLimit/2
		}
	}
	c := l.chunks[ci]
	if len(c.entries) == cap(c.entries) && len(c.entries) >= 16 { // exact capacity, because most memory is here
		c.entries = append(make([]entryAt, 0, min(chunkLimit, 4*len(c.entries))), c.entries...)
	}
	c.entries = slices.Insert(c.entries, i, entryAt{uint32(order - c.base), at})
	return old, false
}

func (l *levelIndex) remove(order uint64) bool {
	ci, i, ok := l.find(order)
	if !ok {
		return false
	}
	c := l.chunks[ci]
	switch {
	case len(c.entries) == 1 && ci == 0:
		l.chunks[0] = nil
		l.chunks = l.chunks[1:]
	case len(c.entries) == 1:
		l.chunks = slices.Delete(l.chunks, ci, ci+1)
	case i == 0:
		c.entries = c.entries[1:]
	default:
		c.entries = slices.Delete(c.entries, i, i+1)
	}
	return true
}

// from yields the messages whose order is at least order.
func (l *levelIndex) from(order uint64) iter.Seq2[uint64, place] {
	return func(yield func(uint64, place) bool) {
		for ci := l.chunkOf(order); ci < len(l.chunks); ci++ {
			c := l.chunks[ci]
			entries := c.list()
			for _, e := range entries[c.search(entries, order):] {
				if !yield(c.base+uint64(e.order), e.place) {
					return
				}
			}
		}
	}
}

// first returns the first message whose order is at least order.
func (l *levelIndex) first(order uint64) (first uint64, at place, ok bool) {
	for first, at := range l.from(order) {
		return first, at, true
	}
	return 0, at, false
}

// last returns the highest order. The level must not be empty.
func (l *levelIndex) last() uint64 { return l.chunks[len(l.chunks)-1].last() }

func keyOf(queue uint64, level uint8, order uint64) Key {
	return Key{Queue: queue, Level: level, Order: order}
}
