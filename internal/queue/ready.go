package queue

import (
	"container/heap"
	"iter"
	"math/bits"
)

// ready holds the messages that wait for a consumer, in the order they are delivered in: by priority, and within one first
// those that were delivered before and given back, by their order, then the fresh ones as they came. A message given back
// was once at the head, so in a classic queue, where it keeps its order number, it is back in its place. In a quorum queue
// those given back have a priority of their own, the highest.
type ready struct {
	levels []level // by priority; as many as have been needed
	filled bitset  // the levels that are not empty
	n      int
	bytes  int64 // that count against the limit
	size   int64 // of everything
}

type level struct {
	fresh    fifo
	returned byOrder
}

func (l *level) len() int { return l.fresh.len() + len(l.returned) }

func (l *level) head() *Item {
	if len(l.returned) > 0 {
		return l.returned[0]
	}
	return l.fresh.head()
}

func (r *ready) len() int { return r.n }

func (r *ready) push(it *Item) { r.entering(it).fresh.push(it) }

func (r *ready) giveBack(it *Item) { heap.Push(&r.entering(it).returned, it) }

func (r *ready) entering(it *Item) *level {
	r.n++
	r.bytes += it.bytes
	r.size += it.Message.Size()
	p := int(it.priority)
	for len(r.levels) <= p {
		r.levels = append(r.levels, level{})
	}
	r.filled.set(p)
	return &r.levels[p]
}

// head returns the next message to be delivered, or nil.
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
	if len(l.returned) > 0 {
		heap.Pop(&l.returned)
	} else {
		l.fresh.pop()
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
