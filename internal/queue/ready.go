package queue

import "container/heap"

// ready holds the messages that wait for a consumer, in the order they are delivered in: first those that were delivered
// before and given back, by their order, then the fresh ones as they came. A message given back was once at the head, so
// in a classic queue, where it keeps its order number, it is back in its place.
type ready struct {
	fresh    fifo
	returned byOrder
}

func (r *ready) len() int { return r.fresh.len() + len(r.returned) }

func (r *ready) push(it *Item) { r.fresh.push(it) }

func (r *ready) giveBack(it *Item) { heap.Push(&r.returned, it) }

// head returns the next message to be delivered, or nil.
func (r *ready) head() *Item {
	if len(r.returned) > 0 {
		return r.returned[0]
	}
	return r.fresh.head()
}

func (r *ready) pop() {
	if len(r.returned) > 0 {
		heap.Pop(&r.returned)
		return
	}
	r.fresh.pop()
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

// fifo is a queue in a ring, a power of two long.
type fifo struct {
	ring []*Item
	from int
	n    int
}

const fifoMin = 16

func (f *fifo) len() int { return f.n }

func (f *fifo) head() *Item {
	if f.n == 0 {
		return nil
	}
	return f.ring[f.from]
}

func (f *fifo) push(it *Item) {
	if f.n == len(f.ring) {
		f.resize(max(fifoMin, 2*f.n))
	}
	f.ring[(f.from+f.n)&(len(f.ring)-1)] = it
	f.n++
}

func (f *fifo) pop() {
	f.ring[f.from] = nil
	f.from = (f.from + 1) & (len(f.ring) - 1)
	f.n--
	// A burst that has gone must not keep its room.
	if len(f.ring) > fifoMin && f.n <= len(f.ring)/4 {
		f.resize(len(f.ring) / 2)
	}
}

func (f *fifo) resize(to int) {
	ring := make([]*Item, to)
	for i := range f.n {
		ring[i] = f.ring[(f.from+i)&(len(f.ring)-1)]
	}
	f.ring, f.from = ring, 0
}
