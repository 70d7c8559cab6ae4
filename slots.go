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

func newSlots(n int) *slots {
	s := &slots{free: make(chan int, n), running: make([]atomic.Pointer[delivery], n)}
	for i := range n {
		s.free <- i
	}
	return s
}

func (s *slots) enter(slot int, d *delivery) { s.running[slot].Store(d) }

func (s *slots) leave(slot int) {
	s.running[slot].Store(nil)
	s.free <- slot
}

// taken is how many handlers run.
func (s *slots) taken() int { return cap(s.free) - len(s.free) }

// quiet returns a slot when no handler runs, or the reason ctx ended. One
// goroutine at a time may call it.
func (s *slots) quiet(ctx context.Context) (slot int, err error) {
	var mine []int
	for len(mine) < cap(s.free) && err == nil {
		select {
		case slot := <-s.free:
			mine = append(mine, slot)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		slot, mine = mine[0], mine[1:]
	}
	for _, slot := range mine {
		s.free <- slot
	}
	return slot, err
}
