package reprise

import (
	"runtime/debug"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// attempt runs the handler and settles what it says. It occupies its place only
// while the handler runs: copies await their confirms beside it.
func (w *Worker) attempt(d *delivery, taken place, record func(error)) {
	if settle := w.unattempted(d); settle != nil {
		w.record(record, ErrNotAttempted)
		w.slots.leave(taken)
		settle()
		return
	}
	w.slots.enter(taken, d)
	began := time.Now()
	w.observe(Event{Kind: EventStarted, MessageID: d.MessageID, Attempt: d.attempt, Age: age(d, began)})
	err := ErrHandlerExited // stands when the handler leaves through runtime.Goexit
	// Deferred, because after Goexit nothing else would run.
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		took := time.Since(began)
		w.observe(Event{Kind: EventHandled, MessageID: d.MessageID, Message: d.given, Attempt: d.attempt, Err: err, Took: took})
		s := w.listen(err)
		if s.outcome != succeeded && w.handling.Err() != nil {
			w.record(record, ErrNotAttempted)
		} else {
			w.record(record, err)
		}
		w.gate.pause(s.pause, s.err)
		w.slots.leave(taken)
		w.settle(d, s, took)
	}()
	d.given = w.message(d)
	err = w.handler.Handle(w.handling, d.given)
}

// record tells the breaker, if there is one.
func (w *Worker) record(record func(error), err error) {
	if record == nil {
		return
	}
	if err := guard("breaker", func() error { record(err); return nil }); err != nil {
		w.log.Error("breaker failed", "error", err)
	}
}

// unattempted returns the function that settles a delivery that the handler must not
// see, or nil if the handler is to see it.
func (w *Worker) unattempted(d *delivery) (settle func()) {
	switch {
	case d.err != nil:
		w.log.Error("cannot be handled", "message_id", d.MessageID, "error", d.err)
		return func() { w.parkUnmarked(d, w.replacement(d, d.err.Error(), 0), nil) }
	case d.spent(w.cfg.Policy):
		return w.park(d, "attempts made", "not handled again: all its attempts were made, and the last one was never settled")
	}
	if text := d.crashed(); text != "" {
		return w.park(d, "never settled", text)
	}
	return nil
}

// spent reports whether a message that is delivered once more has no attempt
// left: where the broker counts them, one that ended the process counts as well.
func (d *delivery) spent(p Policy) bool {
	left := d.history.RetriesLeft
	return d.Redelivered && left == topology.Undecided && d.history.Attempts >= p.most()
}

// park returns what parks a delivery without an attempt.
func (w *Worker) park(d *delivery, reason, text string) (settle func()) {
	s := said{verdict: verdict{outcome: hopeless}, reason: reason, text: text, err: errText(text)}
	return func() { w.settle(d, s, 0) }
}

func age(d *delivery, now time.Time) time.Duration {
	if d.Timestamp.IsZero() {
		return 0
	}
	return max(0, now.Sub(d.Timestamp))
}
