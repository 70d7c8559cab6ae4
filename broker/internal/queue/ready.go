package queue

import (
	"container/heap"
	"iter"
	"math/bits"
)

// ready contains the ready messages in delivery order: by priority, and then by order. A requeued message of a classic
// queue keeps its order, and therefore returns to its position. Requeued messages of a quorum queue have a separate
// priority, which is the highest.
type ready struct {
	levels []level // by priority; grows as needed
	filled bitset  // the levels that are not empty
	n      int
	bytes  int64 // size counted against MaxBytes
	size   int64 // size of the messages in memory
	onDisk int   // number of messages that are not in memory
}

// level contains the messages of one priority.
//
//	returned ┐
//	fresh    ┴─► head
//	  ▲
//	  └── disk ◄── tail ◄── push
//
// The queue adds new messages to fresh if the level has no messages on disk or in the tail, and memory is available or
// fresh is short. Otherwise, it adds them to the tail. When a message of the tail is on disk, the queue evicts the
// message from memory, and loads it again later. Only committed messages are evicted, so that a load always finds them.
// The queue loads a message from the disk before it deletes the message, unless it deletes all messages in one step
// (deleteSavedReady).
type level struct {
	returned byOrder // requeued messages
	fresh    fifo
	disk     segment
	tail     fifo
}

func (l *level) len() int { return len(l.returned) + l.fresh.len() + l.disk.n + l.tail.len() }

// spilled reports whether the level has messages on disk or in the tail.
func (l *level) spilled() bool { return l.disk.n > 0 || l.tail.len() > 0 }

// head returns the first message, or nil if the level is empty or the message is not loaded.
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

// catchUp moves the tail to fresh if no messages precede the tail in fresh or on disk.
func (l *level) catchUp() {
	if l.fresh.len() == 0 && l.disk.n == 0 && l.tail.len() > 0 {
		l.fresh, l.tail = l.tail, l.fresh
	}
}

// spill evicts the first message of the tail from memory. The message must be on disk.
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

// load moves the first message on disk to fresh.
func (r *ready) load(l *level, it *Item) {
	l.disk.n--
	l.disk.bytes -= it.bytes
	l.disk.after = it.order
	r.onDisk--
	r.size += it.Message.Size()
	l.fresh.push(it)
}

// lose subtracts from the counts the messages that are missing in the store.
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

// unreadable returns the error of the last load at the highest priority that has messages, or nil if that load did not
// fail.
func (r *ready) unreadable() error { return r.levels[r.filled.highest()].disk.err }

// onDiskBytes returns the total size, as counted against MaxBytes, of the messages that are not in memory.
func (r *ready) onDiskBytes() (n int64) {
	for i := range r.levels {
		n += r.levels[i].disk.bytes
	}
	return n
}

func (r *ready) len() int { return r.n }

func (r *ready) push(it *Item) { r.entering(it).fresh.push(it) }

// pushTail is like push, but for a message that spills to disk.
func (r *ready) pushTail(it *Item) {
	l := r.entering(it)
	l.tail.push(it)
	l.catchUp()
}

func (r *ready) requeue(it *Item) { heap.Push(&r.entering(it).returned, it) }

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

// head returns the next message to deliver, or nil if the queue is empty or the message is not loaded.
func (r *ready) head() *Item {
	if r.n == 0 {
		return nil
	}
	return r.levels[r.filled.highest()].head()
}

// heads yields the first message of each priority, if it is loaded, from the highest priority to the lowest.
func (r *ready) heads() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for p := len(r.levels) - 1; p >= 0; p-- {
			if head := r.levels[p].head(); head != nil && !yield(head) {
				return
			}
		}
	}
}

// remove removes a message, which must be the first of its priority.
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

// byOrder is a min-heap by order.
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

// bitset is a set of priorities (0 to 255).
type bitset [4]uint64

func (b *bitset) set(i int)   { b[i>>6] |= 1 << (i & 63) }
func (b *bitset) clear(i int) { b[i>>6] &^= 1 << (i & 63) }

// highest returns the largest member. The set must not be empty.
func (b *bitset) highest() int {
	for w := len(b) - 1; ; w-- {
		if b[w] != 0 {
			return w<<6 + bits.Len64(b[w]) - 1
		}
	}
}
