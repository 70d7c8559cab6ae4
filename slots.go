package reprise

import (
	"context"
	"sync/atomic"
)

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

// all adds to a place all other slots, as they become free. Where ctx ends before
// that, it frees the place and returns the reason. One goroutine at a time may
// call it.
func (s *slots) all(ctx context.Context, p place) (place, error) {
	for len(p) < cap(s.free) {
		select {
		case slot := <-s.free:
			p = append(p, slot)
		case <-ctx.Done():
			s.leave(p)
			return nil, context.Cause(ctx)
		}
	}
	return p, nil
}
