package reprise

import "context"

// entry is how an attempt comes to begin. It gathers what has to be waited for: a
// slot, or all of them where nothing is to run beside it; then the limiter's leave.
// It does not wait itself. Its owner does, beside whatever else it has to look
// after: for a slot, which it hands over with take, and for leave, whose answer it
// hands over with answered. When it is ready, the attempt may begin, if the gate lets it.
//
// A limiter that was asked goes on being asked while there is nothing to begin: one
// that counts from when it is asked would never be done, if messages go back to
// their queue meanwhile. What it grants to nobody is lost.
//
// It is for one goroutine.
type entry struct {
	worker *Worker
	alive  context.Context
	need   int   // slots
	place  place // the slots that have come
	passed bool  // the limiter has given its leave

	leave  <-chan bool // gets the limiter's answer; nil: it is not being asked
	cancel context.CancelFunc
}

// entry makes an entry that needs so many slots. It gets nothing once alive has ended.
func (w *Worker) entry(alive context.Context, need int) *entry {
	return &entry{worker: w, alive: alive, need: need}
}

// free returns the channel that the next slot comes from, or nil where there are enough.
func (e *entry) free() <-chan int {
	if len(e.place) == e.need {
		return nil
	}
	return e.worker.slots.free
}

// take takes a slot that came.
func (e *entry) take(slot int) { e.place = append(e.place, slot) }

// answered takes the limiter's answer. Where that is no, it is asked again once the
// pause is over that its failure has brought about: see ready.
func (e *entry) answered(yes bool) {
	e.cancel()
	e.leave, e.cancel = nil, nil
	e.passed = yes && len(e.place) == e.need
}

// ready reports whether there is all that has to be waited for. Where only the
// limiter's leave is missing, it asks for it.
func (e *entry) ready() bool {
	limiter := e.worker.gate.limiter
	switch {
	case len(e.place) < e.need:
		return false
	case limiter == nil || e.passed:
		return true
	}
	if paused, _ := e.worker.gate.left(); e.leave == nil && paused <= 0 {
		ctx, cancel := context.WithCancel(e.alive)
		leave := make(chan bool, 1)
		e.leave, e.cancel = leave, cancel
		e.worker.attempts.Go(func() { leave <- e.worker.gate.limit(ctx) })
	}
	return false
}

// begin returns the place of an attempt that begins now, and record, which may be nil
// and takes its result. Where the gate is closed, it frees the place.
func (e *entry) begin() (p place, record func(error), ok bool) {
	record, ok = e.worker.gate.enter(e.alive)
	if !ok {
		e.vacate()
		return nil, nil, false
	}
	p, e.place, e.passed = e.place, nil, false
	return p, record, true
}

// vacate frees the slots, as there is nothing to begin.
func (e *entry) vacate() {
	if len(e.place) > 0 {
		e.worker.slots.leave(e.place)
	}
	e.place, e.passed = nil, false
}

// end frees the slots and asks for nothing any more.
func (e *entry) end() {
	e.vacate()
	if e.cancel != nil {
		e.cancel()
		e.leave, e.cancel = nil, nil
	}
}
