package queue

import (
	"container/heap"
	"iter"
	"math/bits"
)

// ready holds the messages that wait for a consumer, in the order they are delivered in: by priority, and within one by
// order. A message given back to a classic queue keeps its order, so that it is back in its place. In a quorum queue those
// given back have a priority of their own, the highest.
type ready struct {
	levels []level // by priority; as many as have been needed
	filled bitset  // the levels that are not empty
	n      int
	bytes  int64 // that count against the limit
	size   int64 // of what is in memory
	onDisk int   // how many are not
}

// level holds the messages of one priority.
//
//	returned ┐
//	fresh    ┴─► head
//	  ▲
//	  └── disk ◄── tail ◄── push
//
// As long as there is memory, messages are pushed to the end of those that are fresh. Then they are pushed to the tail, where
// they wait until they are on the disk and are let go of, to be loaded again in their turn. Only messages that are committed
// are let go of, so that a load always finds them. A message on disk is loaded before it is deleted, or all of them are
// deleted at once (unkeepReady).
type level struct {
	returned byOrder // were delivered and given back
	fresh    fifo
	disk     segment
	tail     fifo
}

func (l *level) len() int { return len(l.returned) + l.fresh.len() + l.disk.n + l.tail.len() }

// spilled reports whether there are messages behind those that are fresh.
func (l *level) spilled() bool { return l.disk.n > 0 || l.tail.len() > 0 }

// head returns the first message, or nil if it is yet to be loaded.
func (l *level) head() *Item {
	fresh := l.fresh.head()
	switch {
	case len(l.returned) == 0:
		return fresh
	case fresh != nil && fresh.order < l.returned[0].order, fresh == nil && l.disk.n > 0 && l.disk.after < l.returned[0].order:
		return fresh
	}
	return l.returned[0]
}

// catchUp makes the tail fresh when there is nothing left between them.
func (l *level) catchUp() {
	if l.fresh.len() == 0 && l.disk.n == 0 && l.tail.len() > 0 {
		l.fresh, l.tail = l.tail, l.fresh
	}
}

// spill lets go of the first message of a tail, which is on disk.
func (r *ready) spill(l *level) {
	it := l.tail.head()
	l.tail.pop()
	if l.disk.n == 0 {
		l.disk.after = it.order - 1
	}
	l.disk.n++
	l.disk.bytes += it.bytes
	r.onDisk++
	r.size -= it.Message.Size()
}

// load takes the first message that is on disk back into memory.
func (r *ready) load(l *level, it *Item) {
	l.disk.n--
	l.disk.bytes -= it.bytes
	l.disk.after = it.order
	r.onDisk--
	r.size += it.Message.Size()
	l.fresh.push(it)
}

// lose takes off the count what was to be on disk and is not.
func (r *ready) lose(p uint8, what segment) {
	l := &r.levels[p]
	r.n -= what.n
	r.bytes -= what.bytes
	r.onDisk -= what.n
	l.disk.n -= what.n
	l.disk.bytes -= what.bytes
	if l.len() == 0 {
		r.filled.clear(int(p))
	}
}

// unreadable tells why the head could not be loaded the last time; nil: it could, or nobody has tried.
func (r *ready) unreadable() error { return r.levels[r.filled.highest()].disk.err }

// onDiskBytes is what counts against the limit of what is not in memory.
func (r *ready) onDiskBytes() (n int64) {
	for i := range r.levels {
		n += r.levels[i].disk.bytes
	}
	return n
}

func (r *ready) len() int { return r.n }

func (r *ready) push(it *Item) { r.entering(it).fresh.push(it) }

// pushTail is push for a message that is to be on disk only.
func (r *ready) pushTail(it *Item) {
	l := r.entering(it)
	l.tail.push(it)
	l.catchUp()
}

func (r *ready) giveBack(it *Item) { heap.Push(&r.entering(it).returned, it) }

func (r *ready) entering(it *Item) *level {
	r.n++
	r.bytes += it.bytes
	r.size += it.Message.Size()
	r.filled.set(int(it.priority))
	return r.level(it.priority)
}

func (r *ready) level(p uint8) *level {
	for len(r.levels) <= int(p) {
		r.levels = append(r.levels, level{})
	}
	return &r.levels[p]
}

// head returns the next message to be delivered, or nil: there is none, or it is yet to be loaded.
func (r *ready) head() *Item {
	if r.n == 0 {
		return nil
	}
	return r.levels[r.filled.highest()].head()
}

// heads yields the first message of each priority, the highest first.
func (r *ready) heads() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for p := len(r.levels) - 1; p >= 0; p-- {
			if head := r.levels[p].head(); head != nil && !yield(head) {
				return
			}
		}
	}
}

// remove takes out a message that is the first of its priority.
func (r *ready) remove(it *Item) {
	l := &r.levels[it.priority]
	if l.fresh.head() == it {
		l.fresh.pop()
		l.catchUp()
	} else {
		heap.Pop(&l.returned)
	}
	r.n--
	r.bytes -= it.bytes
	r.size -= it.Message.Size()
	if l.len() == 0 {
		r.filled.clear(int(it.priority))
	}
}

// byOrder is a heap.
type byOrder []*Item

func (h byOrder) Len() int           { return len(h) }
func (h byOrder) Less(i, j int) bool { return h[i].order < h[j].order }
func (h byOrder) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byOrder) Push(x any)        { *h = append(*h, x.(*Item)) }

func (h *byOrder) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}

// bitset is a set of priorities, which are bytes.
type bitset [4]uint64

func (b *bitset) set(i int)   { b[i>>6] |= 1 << (i & 63) }
func (b *bitset) clear(i int) { b[i>>6] &^= 1 << (i & 63) }

// highest returns the largest member; there must be one.
func (b *bitset) highest() int {
	for w := len(b) - 1; ; w-- {
		if b[w] != 0 {
			return w<<6 + bits.Len64(b[w]) - 1
		}
	}
}
