package queue

import "iter"

// fifo is a ring buffer. Its length is a power of two.
type fifo struct {
	ring []*Item
	from int
	n    int
	size int64 // total memory of the items
}

const fifoMin = 16

func (f *fifo) len() int { return f.n }

func (f *fifo) head() *Item {
	if f.n == 0 {
		return nil
	}
	return f.ring[f.from]
}

// all yields the items, starting at the head.
func (f *fifo) all() iter.Seq[*Item] {
	return func(yield func(*Item) bool) {
		for i := range f.n {
			if !yield(f.ring[(f.from+i)&(len(f.ring)-1)]) {
				return
			}
		}
	}
}

func (f *fifo) push(it *Item) {
	if f.n == len(f.ring) {
		f.resize(max(fifoMin, 2*f.n))
	}
	f.ring[(f.from+f.n)&(len(f.ring)-1)] = it
	f.n++
	f.size += it.Message.Size()
}

func (f *fifo) pop() {
	f.size -= f.ring[f.from].Message.Size()
	f.ring[f.from] = nil
	f.from = (f.from + 1) & (len(f.ring) - 1)
	f.n--
	// Release memory after a burst of messages.
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
