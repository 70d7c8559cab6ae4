package consume

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

// Reasons for the end of a subscription.
var (
	errWiden     = errors.New("messages may be handled side by side again")
	errSuspect   = errors.New("a message is to be handled alone")
	errPaused    = errors.New("the worker pauses")
	errCancelled = errors.New("the broker cancelled the consumer (queue deleted or moved, or a message kept for longer than its timeout)")
)

// subscription is one consumer of the queue.
type subscription struct {
	tag        string
	narrow     bool // one message at a time
	prefetch   int
	deliveries amqpconn.Deliveries
}

// serve consumes until the channel is gone (an error) or ctx ends (nil), in one
// subscription after the other on the same channel, so that earlier deliveries can still
// be settled:
//
//	          ┌─ paused ────────────── wait ──────────────┐
//	          │                                           ▼
//	─► wide (Prefetch) ─ suspect ─► wait until idle ─► narrow (1 at a time)
//	          ▲                                           │
//	          └──────────── no reason against it ─────────┘
func (s *session) serve(ctx context.Context) error {
	c := s.consumer
	retrier := retry.Retrier{Schedule: c.Reconnect}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	// If giving back costs messages a delivery, they are not fetched before it is known that
	// none of them is suspect.
	narrow := s.careful || s.countsNacks
	leave := func() error { return nil } // ends the former subscription, if it still exists
	for n := 1; ; n++ {
		if err := s.rest(alive, leave); err != nil {
			return s.unless(ctx, err)
		}
		began := time.Now()
		narrow = narrow || c.gate.probing()
		err := s.subscribe(alive, fmt.Sprintf("%s-%d", c.Tag, n), narrow)
		// Also after an error: the former subscription would get what is given back then.
		if err := errors.Join(err, leave()); err != nil {
			return s.unless(ctx, err)
		}
		leave = func() error { return nil }
		now := s.subscription
		err = s.dispatch(ctx, alive)
		switch {
		case err == nil:
			if s.unsubscribe(now) == nil { // else the end of the channel gives them back
				c.Log.Info("consuming stopped", "running", c.slots.taken(), "given_back", len(s.pending))
				s.giveBack()
			}
			return nil
		case errors.Is(err, errWiden):
			narrow = false
			// The broker deletes an auto-delete queue that has no consumer for a moment. The
			// narrow consumer gets nothing meanwhile: its message is not settled.
			leave = sync.OnceValue(func() error { return s.unsubscribe(now) })
		case errors.Is(err, errSuspect):
			narrow, s.suspected = true, true
			if err := s.unsubscribe(now); err != nil {
				return s.unless(ctx, err)
			}
			s.giveBack() // they should not be here if the process ends
		case errors.Is(err, errPaused):
			if err := s.unsubscribe(now); err != nil {
				return s.unless(ctx, err)
			}
			if !s.countsNacks { // else they stay, and begin later
				s.giveBack()
			}
		case errors.Is(err, errCancelled):
			delay := retrier.Failed(time.Since(began))
			c.Log.Warn("consumer cancelled", retry.Next(delay))
			c.owner.Interrupted(err, delay)
			if retry.Sleep(alive, delay) != nil {
				return s.unless(ctx, context.Cause(alive))
			}
			if _, err := c.owner.Declare(ctx); err != nil {
				return s.unless(ctx, err)
			}
		default:
			return err
		}
	}
}

// unless drops an error that only means that ctx has ended: the session is as good as
// before, and its deliveries can still be settled.
func (s *session) unless(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		s.giveBack()
		return nil
	}
	return err
}

// subscribe begins to consume.
func (s *session) subscribe(alive context.Context, tag string, narrow bool) error {
	c := s.consumer
	prefetch := c.Prefetch
	switch {
	case narrow:
		prefetch = 1
	case c.Certain: // with what former subscriptions have left unsettled
		prefetch = max(1, min(prefetch, ack.CertainWindow+1-s.acks.Unsettled()))
	}
	s.acks.SetSpare(prefetch - c.Concurrency)
	var args topology.Table
	if c.Priority != 0 {
		args = topology.Table{"x-priority": c.Priority}
	}
	deliveries, err := s.ch.Consume(alive, c.Queue, tag, prefetch, args, func(late amqpconn.Deliveries) { s.turnAway(tag, late) })
	if err != nil {
		return err
	}
	s.subscription = subscription{tag: tag, narrow: narrow, prefetch: prefetch, deliveries: deliveries}
	c.Log.Info("consuming", "generation", s.conn.Generation(), "prefetch", prefetch)
	c.owner.Consuming()
	return nil
}

// turnAway ends a subscription that came after the worker had stopped waiting for it. The
// channel may be needed for long, by messages that are being handled.
func (s *session) turnAway(tag string, deliveries amqpconn.Deliveries) {
	if s.cancel(s.ctx, tag) != nil {
		return // the end of the channel gives them back
	}
	for in := range deliveries {
		s.acks.Delivered()
		s.acks.Settle(amqpconn.NewDelivery(in).Tag, ack.GiveBack)
	}
}

// unsubscribe ends a subscription. Deliveries that have not begun are pending then. After
// an error the session has to end: nobody would see its deliveries.
func (s *session) unsubscribe(sub subscription) error {
	ctx, cancel := context.WithTimeoutCause(s.ctx, LastGrace, amqpconn.ErrSilent)
	defer cancel()
	if err := s.cancel(ctx, sub.tag); err != nil {
		return err
	}
	now := time.Now()
	for in := range sub.deliveries {
		s.pending = append(s.pending, s.delivery(in, now))
	}
	return nil
}

// cancel ends a consumer. Its queue has answered then.
func (s *session) cancel(ctx context.Context, tag string) error {
	written := s.acks.Commands()
	if err := s.ch.Cancel(ctx, tag); err != nil {
		return err
	}
	s.proven.Store(written)
	return nil
}

// giveBack gives back what has not begun.
func (s *session) giveBack() {
	for _, d := range append(s.pending, s.bursts.all()...) {
		d.GiveBack()
	}
	s.pending = nil
}

// rest waits for the end of a pause, if there is one. Before that it calls leave: nobody
// would handle what a subscription gets meanwhile.
func (s *session) rest(alive context.Context, leave func() error) error {
	c := s.consumer
	left, reason := c.gate.left()
	if left <= 0 {
		return nil
	}
	if err := leave(); err != nil {
		return err
	}
	if left == unlimited {
		c.Log.Warn("paused", "reason", reason)
		c.owner.Paused(0, reason)
	} else {
		c.Log.Warn("paused", "for", left.Round(time.Millisecond), "reason", reason)
		c.owner.Paused(left, reason)
	}
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		turned := c.gate.turn() // before the look at what is left
		if left, _ = c.gate.left(); left <= 0 {
			break
		}
		look.Reset(min(left, c.deadline.every))
		select {
		case <-look.C:
		case <-turned:
		case <-alive.Done():
			return context.Cause(alive)
		}
		s.remind(time.Now())
	}
	c.Log.Info("resumed")
	c.owner.Resumed()
	return nil
}
