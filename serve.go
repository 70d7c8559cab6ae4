package reprise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
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
	retrier := retry.Retrier{Schedule: w.client.cfg.Reconnect}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	// Where to give messages back costs them something, they are not fetched
	// before it is known that none of them is suspect.
	narrow := s.careful || s.countsNacks
	leave := func() error { return nil } // ends the subscription before, if it is still there
	for n := 1; ; n++ {
		if err := s.rest(alive, leave); err != nil {
			return s.unless(ctx, err)
		}
		began := time.Now()
		tag := fmt.Sprintf("%s-%d", w.client.cfg.Name, n)
		narrow = narrow || w.gate.probing()
		deliveries, err := s.subscribe(alive, tag, narrow)
		// Also after an error: the subscription would get what is given back then.
		if err := errors.Join(err, leave()); err != nil {
			return s.unless(ctx, err)
		}
		why := s.pump(ctx, alive, deliveries, narrow)
		switch {
		case why == nil:
			if s.unsubscribe(tag, deliveries) == nil { // else the end of the channel gives them back
				w.log.Info("consuming stopped", "running", w.slots.taken(), "given_back", len(s.pending))
				s.giveBackPending()
			}
			return nil
		case errors.Is(why, errWiden):
			// The broker deletes an auto-delete queue that has no consumer for a moment. The
			// narrow one gets nothing meanwhile: the message it has had is not settled.
			leave = sync.OnceValue(func() error { return s.unsubscribe(tag, deliveries) })
		case errors.Is(why, errSuspect), errors.Is(why, errPaused):
			if err := s.unsubscribe(tag, deliveries); err != nil {
				return s.unless(ctx, err)
			}
		}
		switch {
		case errors.Is(why, errWiden):
			narrow = false
		case errors.Is(why, errSuspect):
			narrow = true
			s.giveBackPending() // it would be worse for them to be here when it happens
			if w.debounce != nil {
				w.debounce.giveBack()
			}
		case errors.Is(why, errPaused):
			s.putDown()
		case errors.Is(why, errConsumerCancelled):
			delay := retrier.Failed(time.Since(began))
			w.log.Warn("consumer cancelled", retry.Next(delay))
			w.interrupted(why, delay)
			if retry.Sleep(alive, delay) != nil {
				return s.unless(ctx, context.Cause(alive))
			}
			if err := w.client.declare(ctx, w.client.consuming, w.cfg.topology()); err != nil {
				return s.unless(ctx, err)
			}
		default:
			return why
		}
	}
}

// subscribe begins to consume.
func (s *session) subscribe(alive context.Context, tag string, narrow bool) (amqpconn.Deliveries, error) {
	w := s.worker
	prefetch := w.cfg.Prefetch
	switch {
	case narrow:
		prefetch = 1
	case w.cfg.certain(): // with what former subscriptions have left unsettled
		prefetch = max(1, min(prefetch, ack.CertainWindow+1-s.acks.Unsettled()))
	}
	s.prefetch = prefetch
	s.acks.SetSpare(prefetch - w.cfg.Concurrency)
	deliveries, err := s.ch.Consume(alive, w.cfg.Queue, tag, prefetch, w.cfg.arguments(), func(deliveries amqpconn.Deliveries) { s.turnAway(tag, deliveries) })
	if err == nil {
		w.log.Info("consuming", "generation", s.conn.Generation(), "prefetch", prefetch)
		w.observe(Event{Kind: EventConsuming})
		w.status.set(nil)
	}
	return deliveries, err
}

// arguments are those of basic.consume.
func (c WorkerConfig) arguments() topology.Table {
	if c.Priority == 0 {
		return nil
	}
	return topology.Table{"x-priority": c.Priority}
}

// turnAway ends a subscription that came when the worker had stopped waiting for it.
// Its channel may be needed for long yet, by what is being handled.
func (s *session) turnAway(tag string, deliveries amqpconn.Deliveries) {
	if err := s.cancel(s.ctx, tag); err != nil {
		return // the end of the channel gives them back
	}
	for raw := range deliveries {
		s.acks.Settle(s.delivery(raw, time.Now()).Tag, ack.GiveBack)
	}
}

// unsubscribe stops consuming. What was delivered and has not begun is pending
// then. After an error the session has to end: what was delivered would not be
// seen by anybody.
func (s *session) unsubscribe(tag string, deliveries amqpconn.Deliveries) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, lastGrace, amqpconn.ErrSilent)
	defer cancel()
	if err := s.cancel(ctx, tag); err != nil {
		return err
	}
	now := time.Now()
	for raw := range deliveries {
		s.pending = append(s.pending, s.delivery(raw, now))
	}
	return nil
}

// cancel ends a consumer.
func (s *session) cancel(ctx context.Context, tag string) error {
	written := s.acks.Commands()
	err := s.ch.Cancel(ctx, tag)
	if err == nil { // the queue itself has answered
		s.proven = written
	}
	return err
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
	for _, d := range s.pending {
		s.acks.Settle(d.Tag, ack.GiveBack)
	}
	s.pending = nil
}

// rest waits for the end of a pause, if there is one. Before that it calls leave: nobody
// would look at what a subscription gets meanwhile.
func (s *session) rest(alive context.Context, leave func() error) error {
	w := s.worker
	left, reason := w.gate.left()
	if left <= 0 {
		return nil
	}
	if err := leave(); err != nil {
		return err
	}
	w.log.Warn("paused", "for", left.Round(time.Millisecond), "reason", reason)
	w.observe(Event{Kind: EventPaused, Delay: left, Err: reason})
	w.status.set(nil) // on purpose, also where it was interrupted before
	limit := w.cfg.overdue()
	for left > 0 {
		if err := retry.Sleep(alive, min(left, limit.every)); err != nil {
			return err
		}
		s.remind(time.Now(), limit.after)
		left, _ = w.gate.left()
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
