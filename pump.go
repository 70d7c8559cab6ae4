package reprise

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// pump starts an attempt for each delivery, as slots and the gate allow. It returns
// nil when ctx has ended, and else why the subscription has to end. All that it
// waits for is in its select, so that nothing keeps it from reminding of what is
// overdue.
func (s *session) pump(ctx, alive context.Context, deliveries amqpconn.Deliveries, narrow bool) error {
	w := s.worker
	limit := w.cfg.overdue()
	tick := time.NewTicker(limit.every)
	defer tick.Stop()
	s.remind(time.Now(), limit.after)
	held := s.pending
	s.pending = nil
	for _, d := range held {
		s.receive(alive, d, narrow)
	}
	need := 1
	if narrow {
		need = w.cfg.Concurrency
	}
	next := w.entry(alive, need)
	defer next.end()
	for {
		var free <-chan int
		if len(s.pending) > 0 {
			free = next.free()
		}
		select {
		case raw, ok := <-deliveries:
			if !ok {
				return s.whyClosed()
			}
			s.receive(alive, s.delivery(raw, time.Now()), narrow)
		case slot := <-free:
			next.take(slot)
			if err := s.advance(next, narrow); err != nil {
				return err
			}
		case yes := <-next.leave:
			next.answered(yes)
			if err := s.advance(next, narrow); err != nil {
				return err
			}
		case <-w.gate.paused():
			if left, _ := w.gate.left(); left > 0 {
				return errPaused
			}
			// It is over already. What was refused meanwhile may begin.
			if err := s.advance(next, narrow); err != nil {
				return err
			}
		case now := <-tick.C:
			s.remind(now, limit.after)
			if len(s.pending) == 0 {
				next.vacate()
				if narrow && s.held() || !narrow && s.prefetch < w.cfg.Prefetch && s.acks.Unsettled() <= 1 {
					return errWiden
				}
			}
		case <-alive.Done():
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			return nil
		}
	}
}

// receive has a delivery wait for a slot, or before that for others like it.
func (s *session) receive(alive context.Context, d *delivery, narrow bool) {
	w := s.worker
	if w.debounce != nil && !narrow && !w.suspect(d.Delivery) {
		w.debounce.add(alive, d)
		return
	}
	s.pending = append(s.pending, d)
}

// held reports whether nothing is being handled, and messages wait to be settled, but fewer than Prefetch. To a narrow
// subscription the broker delivers nothing meanwhile: the message that was handled alone, or not at all, would block the
// others for as long as its copy is not confirmed.
func (s *session) held() bool {
	n := s.acks.Unsettled()
	return s.worker.slots.taken() == 0 && n > 0 && n < s.worker.cfg.Prefetch
}

// needsNarrow reports whether a delivery, and with it the next ones, should be
// handled by itself.
func (s *session) needsNarrow(d *delivery) bool {
	return s.careful && d.Tag == 1 || s.worker.suspect(d.Delivery) || s.worker.gate.probing()
}

// advance begins an attempt for the first pending delivery, if there is all that it
// needs. It returns why it has to be begun by another subscription.
func (s *session) advance(next *entry, narrow bool) error {
	if len(s.pending) == 0 {
		return nil
	}
	switch d := s.pending[0]; {
	case narrow && !s.needsNarrow(d):
		return errWiden
	case !narrow && s.worker.suspect(d.Delivery):
		return errSuspect
	case next.ready():
		s.begin(next)
	}
	return nil
}

// begin starts an attempt for the first pending delivery, if the gate lets it through.
func (s *session) begin(next *entry) {
	taken, record, ok := next.begin()
	if !ok {
		return
	}
	d := s.pending[0]
	if s.pending = s.pending[1:]; len(s.pending) == 0 {
		s.pending = nil
	}
	s.worker.attempts.Go(func() {
		d.read()
		s.worker.attempt(d, taken, record)
	})
}

// whyClosed tells a cancelled consumer from a closed channel.
func (s *session) whyClosed() error {
	if s.ch.IsClosed() {
		<-s.ctx.Done() // watch is about to say why
		return context.Cause(s.ctx)
	}
	return errConsumerCancelled
}
