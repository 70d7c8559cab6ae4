package reprise

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Why a subscription ends that the broker did not end.
var (
	errWiden   = errors.New("messages may be handled side by side again")
	errSuspect = errors.New("a message is to be handled alone")
	errPaused  = errors.New("the worker pauses")
)

// serve consumes until the channel is gone (an error) or ctx ends (nil), in one
// subscription after the other on the same channel, so that what was delivered
// before can still be settled:
//
//	          ┌─ paused ────────────── wait ──────────────┐
//	          │                                           ▼
//	─► wide (Prefetch) ─ suspect ─► wait until quiet ─► narrow (1 at a time)
//	          ▲                                           │
//	          └─────── nothing speaks against it ─────────┘
func (s *session) serve(ctx context.Context) error {
	w := s.worker
	retry := retrier{schedule: w.client.cfg.Reconnect}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	// Where to give messages back costs them something, they are not fetched
	// before it is known that none of them is suspect.
	narrow := s.careful || s.countsNacks
	for n := 1; ; n++ {
		began := time.Now()
		tag := fmt.Sprintf("%s-%d", w.client.cfg.Name, n)
		narrow = narrow || w.gate.probing()
		deliveries, err := s.subscribe(ctx, tag, narrow)
		if err != nil {
			return s.unless(ctx, err)
		}
		err = s.pump(ctx, alive, deliveries, narrow)
		switch {
		case err == nil:
			s.unsubscribe(tag, deliveries)
			w.log.Info("consuming stopped", "given_back", len(s.pending))
			s.giveBackPending()
			return nil
		case errors.Is(err, errWiden):
			narrow = false
			s.unsubscribe(tag, deliveries)
		case errors.Is(err, errSuspect):
			narrow = true
			s.unsubscribe(tag, deliveries)
			s.giveBackPending() // it would be worse for them to be here when it happens
			slot, err := w.slots.quiet(alive)
			if err != nil {
				return s.unless(ctx, err)
			}
			w.slots.leave(slot)
		case errors.Is(err, errPaused):
			s.unsubscribe(tag, deliveries)
			s.putDown()
			if err := s.rest(alive); err != nil {
				return s.unless(ctx, err)
			}
		case errors.Is(err, errConsumerCancelled):
			delay := retry.failed(time.Since(began))
			w.log.Warn("consumer cancelled", "next_try", delay)
			w.interrupted(err, delay)
			if sleep(alive, delay) != nil {
				return s.unless(ctx, context.Cause(alive))
			}
			if err := w.client.declare(ctx, w.client.consuming, w.cfg.topology()); err != nil {
				return s.unless(ctx, err)
			}
		default:
			return err
		}
	}
}

// subscribe begins to consume.
func (s *session) subscribe(ctx context.Context, tag string, narrow bool) (<-chan amqp.Delivery, error) {
	w := s.worker
	prefetch := w.cfg.Prefetch
	if narrow {
		prefetch = 1
	}
	deliveries, err := call(ctx, w.client, func() (<-chan amqp.Delivery, error) {
		if err := s.ch.Qos(prefetch, 0, false); err != nil { // of consumers to come
			return nil, err
		}
		return s.ch.Consume(w.cfg.Queue, tag, false, false, false, false, nil)
	}, nil)
	if err == nil {
		w.log.Info("consuming", "generation", s.conn.gen, "prefetch", prefetch)
		w.observe(Event{Kind: EventConsuming})
		w.status.set(nil)
	}
	return deliveries, err
}

// unsubscribe stops consuming. What was delivered and has not begun is pending
// then.
func (s *session) unsubscribe(tag string, deliveries <-chan amqp.Delivery) {
	ctx, cancel := context.WithTimeout(s.ctx, lastGrace)
	defer cancel()
	_, err := call(ctx, s.worker.client, func() (struct{}, error) { return struct{}{}, s.ch.Cancel(tag, false) }, nil)
	if err != nil {
		return // the channel is gone, or will be closed: both give back everything
	}
	now := time.Now()
	for raw := range deliveries {
		s.pending = append(s.pending, arrival{raw, now})
	}
}

// putDown gives back what has not begun, where that costs it nothing. Before
// RabbitMQ 4.3 it would cost one of the deliveries it is allowed: there it
// stays with us, to be begun later.
func (s *session) putDown() {
	if s.countsNacks {
		return
	}
	s.giveBackPending()
}

func (s *session) giveBackPending() {
	for _, a := range s.pending {
		s.acks.giveBack(a.DeliveryTag)
	}
	s.pending = nil
}

// rest waits for the end of a pause.
func (s *session) rest(alive context.Context) error {
	w := s.worker
	left, reason := w.gate.left()
	w.log.Warn("paused", "for", left, "reason", reason)
	w.observe(Event{Kind: EventPaused, Delay: left, Err: reason})
	if err := w.gate.await(alive); err != nil {
		return err
	}
	w.log.Info("resumed")
	w.observe(Event{Kind: EventResumed})
	return nil
}

// unless drops an error that only says that ctx has ended: the session is as
// good as before, and what was given out on it can still be settled.
func (s *session) unless(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		s.giveBackPending()
		return nil
	}
	return err
}

// pump starts an attempt for each delivery, as slots allow. It returns nil when
// ctx has ended, and else why the subscription has to end.
func (s *session) pump(ctx, alive context.Context, deliveries <-chan amqp.Delivery, narrow bool) error {
	w := s.worker
	overdue := w.cfg.overdue()
	tick := time.NewTicker(overdue.every)
	defer tick.Stop()
	held := s.pending
	s.pending = nil
	for _, a := range held {
		s.receive(alive, a, narrow)
	}
	for {
		var free <-chan int
		if len(s.pending) > 0 {
			free = w.slots.free
		}
		select {
		case raw, ok := <-deliveries:
			if !ok {
				return s.whyClosed()
			}
			s.receive(alive, arrival{raw, time.Now()}, narrow)
		case slot := <-free:
			switch a := s.pending[0]; {
			case narrow && !s.needsNarrow(a):
				w.slots.leave(slot)
				return errWiden
			case !narrow && w.suspect(a.Delivery):
				w.slots.leave(slot)
				return errSuspect
			case narrow:
				w.slots.leave(slot)
				var err error
				if slot, err = w.slots.quiet(alive); err != nil {
					continue // and end
				}
			}
			s.begin(alive, slot)
		case <-w.gate.paused():
			if left, _ := w.gate.left(); left > 0 {
				return errPaused
			}
		case now := <-tick.C:
			s.remind(now, overdue.after)
		case <-alive.Done():
			if s.ctx.Err() != nil {
				return context.Cause(s.ctx)
			}
			return nil
		}
	}
}

// receive has a delivery wait for a slot, or before that for others like it.
func (s *session) receive(alive context.Context, a arrival, narrow bool) {
	w := s.worker
	if w.debounce != nil && !narrow && !w.suspect(a.Delivery) {
		w.debounce.add(alive, s, a)
		return
	}
	s.pending = append(s.pending, a)
}

// needsNarrow reports whether a delivery, and with it the next ones, should be
// handled by itself.
func (s *session) needsNarrow(a arrival) bool {
	return s.careful && a.DeliveryTag == 1 || s.worker.suspect(a.Delivery) || s.worker.gate.probing()
}

// begin starts an attempt for the first pending delivery in a slot, or frees the
// slot again where the gate lets none through.
func (s *session) begin(alive context.Context, slot int) {
	w := s.worker
	record, ok := w.gate.enter(alive)
	if !ok {
		w.slots.leave(slot)
		return
	}
	a := s.pending[0]
	if s.pending = s.pending[1:]; len(s.pending) == 0 {
		s.pending = nil
	}
	w.attempts.Go(func() { w.attempt(s.delivery(a), slot, record) })
}

// whyClosed tells a cancelled consumer from a closed channel.
func (s *session) whyClosed() error {
	if s.ch.IsClosed() {
		<-s.ctx.Done() // watch is about to say why
		return context.Cause(s.ctx)
	}
	return errConsumerCancelled
}
