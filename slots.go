package reprise

import "sync/atomic"

// slots are the places of a worker's running handlers, numbered, so that it can
// be told who is in them.
type slots struct {
	free    chan int
	running []atomic.Pointer[delivery] // by number; nil: nobody, or not yet known
}

// place is what an attempt occupies: one slot, or all of them, so that no other
// runs beside it.
type place []int

func newSlots(n int) *slots {
	s := &slots{free: make(chan int, n), running: make([]atomic.Pointer[delivery], n)}
	for i := range n {
		s.free <- i
	}
	return s
}

func (s *slots) enter(p place, d *delivery) { s.running[p[0]].Store(d) }

func (s *slots) leave(p place) {
	s.running[p[0]].Store(nil)
	for _, slot := range p {
		s.free <- slot
	}
}

// taken is how many slots are.
func (s *slots) taken() int { return cap(s.free) - len(s.free) }
