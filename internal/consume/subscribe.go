package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Reasons to end a subscription.
var (
	errWiden     = errors.New("messages may be handled concurrently again")
	errSuspect   = errors.New("a suspected message must be handled alone")
	errBusy      = errors.New("all handlers run leased attempts")
	errPaused    = errors.New("the worker is paused")
	errCancelled = errors.New("the broker cancelled the consumer (queue deleted or moved, or a message held beyond the acknowledgement timeout)")
)

// subscription is one consumer of the queue, or of each lane.
type subscription struct {
	tags       []string // of the consumers
	narrow     bool     // one message at a time
	prefetch   int      // of each consumer
	deliveries amqpconn.Deliveries
	held       *atomic.Int32 // deliveries of this subscription that are held; its prefetch does not include others

	// With Lanes:
	searches bool            // the session gets single messages, without a consumer; see search
	ended    <-chan struct{} // closed when one of the consumers has ended
}

// serve consumes. It returns an error when the channel closes, and nil when ctx is done. It opens consecutive
// subscriptions on the same channel, so that earlier deliveries can still be settled:
//
//	          ┌─ paused ────────────── wait ──────────────┐
//	          │                                           ▼
//	─► wide (Prefetch) ─ suspect ─► wait until idle ─► narrow (1 at a time)
//	          ▲                                           │
//	          └───────────── no suspected message ────────┘
func (s *session) serve(ctx context.Context) error {
	c := s.consumer
	retrier := retry.Retrier{Schedule: c.Reconnect}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	// If a requeue counts towards the delivery limit, the session starts narrow, until the first message is known not to be
	// suspect.
	narrow := s.careful || s.countsNacks
	unsubscribePrevious := func() error { return nil } // ends the previous subscription, if it still exists
	for n := 1; ; n++ {
		if err := s.waitWhilePaused(alive, unsubscribePrevious); err != nil {
			return s.ignoreCanceled(ctx, err)
		}
		began := time.Now()
		narrow = narrow || c.pauser.probing()
		err := s.subscribe(alive, fmt.Sprintf("%s-%d", c.Tag, n), narrow)
		// unsubscribePrevious also runs after an error. Otherwise the previous subscription would receive requeued messages.
		if err := errors.Join(err, unsubscribePrevious()); err != nil {
			return s.ignoreCanceled(ctx, err)
		}
		unsubscribePrevious = func() error { return nil }
		now := s.subscription
		err = s.dispatch(ctx, alive)
		switch {
		case err == nil:
			if s.unsubscribe(now) == nil { // after an error, closing the channel requeues the deliveries
				c.Log.Info("consuming stopped", "running", c.slots.taken(), "requeued", s.pending.n)
				s.requeuePending()
			}
			return nil
		case errors.Is(err, errWiden):
			narrow = false
			// The broker deletes an auto-delete queue as soon as it has no consumer. The narrow consumer does not receive
			// messages until unsubscribePrevious runs, because its message is unsettled.
			unsubscribePrevious = sync.OnceValue(func() error { return s.unsubscribe(now) })
		case errors.Is(err, errSuspect):
			narrow, s.suspected = true, true
			if err := s.unsubscribe(now); err != nil {
				return s.ignoreCanceled(ctx, err)
			}
			if !s.countsNacks { // otherwise, a requeue would count in any case, and a crash might not happen
				if err := s.requeueSound(); err != nil {
					return s.ignoreCanceled(ctx, err)
				}
			}
		case errors.Is(err, errBusy):
			err := s.unsubscribe(now)
			if err == nil {
				s.requeuePending()
			}
			close(s.yielded)
			if err == nil {
				err = s.waitWhileBusy(alive)
			}
			if err != nil {
				return s.ignoreCanceled(ctx, err)
			}
		case errors.Is(err, errPaused):
			if err := s.unsubscribe(now); err != nil {
				return s.ignoreCanceled(ctx, err)
			}
			if !s.countsNacks { // otherwise they stay pending and start after the pause
				s.requeuePending()
			}
		case errors.Is(err, errCancelled):
			if len(c.Lanes) > 0 { // the other lanes have consumers
				if err := s.unsubscribe(now); err != nil {
					return s.ignoreCanceled(ctx, err)
				}
			}
			delay := retrier.Failed(time.Since(began))
			c.Log.Warn("consumer cancelled", retry.Next(delay))
			c.owner.Interrupted(err, delay)
			if retry.Sleep(alive, delay) != nil {
				return s.ignoreCanceled(ctx, context.Cause(alive))
			}
			if _, err := c.owner.Declare(ctx); err != nil {
				return s.ignoreCanceled(ctx, err)
			}
		default:
			return err
		}
	}
}

// If err only results from the cancellation of ctx, ignoreCanceled requeues the pending deliveries and returns nil. The
// session still works in this case, and its deliveries can be settled.
func (s *session) ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil && s.ctx.Err() == nil {
		s.requeuePending()
		return nil
	}
	return err
}

// subscribe starts a consumer.
func (s *session) subscribe(alive context.Context, tag string, narrow bool) error {
	c := s.consumer
	prefetch := c.Prefetch
	switch {
	case narrow:
		prefetch = 1
	case c.Certain: // the window includes the unsettled deliveries of previous subscriptions
		prefetch = max(1, min(prefetch, ack.CertainWindow+1-s.acks.Unsettled()))
	}
	s.acks.SetSpare(prefetch - c.Concurrency)
	var args topology.Table
	if c.Priority != 0 {
		args = topology.Table{"x-priority": c.Priority}
	}
	sub := subscription{narrow: narrow, prefetch: prefetch, held: new(atomic.Int32)}
	s.acks.Subscribed()
	var err error
	switch {
	case len(c.Lanes) == 0:
		sub.tags = []string{tag}
		sub.deliveries, err = s.ch.Consume(alive, c.Queue, tag, prefetch, args, func(late amqpconn.Deliveries) { s.cancelLate(tag, late) })
	case narrow && (s.suspected || !c.pauser.probing()):
		sub.searches, s.searched, s.chosen = true, 0, nil
	default:
		err = s.consumeLanes(alive, &sub, tag, args)
	}
	if err != nil {
		return err
	}
	s.subscription = sub
	c.Log.Info("consuming", "generation", s.conn.Generation(), "prefetch", prefetch)
	c.owner.Consuming()
	return nil
}

// cancelLate cancels a consumer that the broker started after the session had stopped waiting for it. The channel stays
// open, because handlers may need it for a long time.
func (s *session) cancelLate(tag string, deliveries amqpconn.Deliveries) {
	if s.cancel(s.ctx, tag) != nil {
		return // closing the channel requeues the deliveries
	}
	for in := range deliveries {
		s.acks.Delivered()
		s.acks.Settle(in.Tag, ack.NackRequeue)
	}
}

// unsubscribe ends a subscription and adds its remaining deliveries to pending. After an error,
// the session must end, because it no longer reads the deliveries.
func (s *session) unsubscribe(sub subscription) error {
	if sub.searches {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, LastGrace, amqpconn.ErrSilent)
	defer cancel()
	if err := s.cancel(ctx, sub.tags...); err != nil {
		return err
	}
	now := time.Now()
	for in := range sub.deliveries {
		s.pending.add(s.delivery(sub, in, now))
	}
	return nil
}

// cancel cancels consumers. If it returns nil, their queues have answered.
func (s *session) cancel(ctx context.Context, tags ...string) error {
	written := s.acks.Commands()
	for _, tag := range tags {
		if err := s.ch.Cancel(ctx, tag); err != nil {
			return err
		}
	}
	s.queueAnswered.Store(written)
	return nil
}

// requeuePending requeues the deliveries that have not had an attempt.
func (s *session) requeuePending() {
	for _, d := range slices.Concat(s.pending.take(), s.repeated, s.bursts.all()) {
		d.Release()
		d.Requeue()
	}
	if len(s.repeated) > 0 {
		s.repeated = nil
		s.noteRepeated()
	}
}

// requeueSound requeues the pending deliveries before a suspected message is handled, and waits for the broker, so that a crash in
// this attempt does not count as a delivery of the other messages. With Lanes, it keeps the suspected message: otherwise two
// processes could return all messages to each other indefinitely, because neither finds a message while it searches.
func (s *session) requeueSound() error {
	if len(s.consumer.Lanes) > 0 {
		s.pending.remove(s.chosen, s.pending.index(s.chosen))
		defer s.pending.add(s.chosen)
	}
	s.requeuePending()
	if !s.acks.Flush() {
		<-s.ctx.Done()
		return context.Cause(s.ctx)
	}
	s.awaitQueue(s.ctx)
	return nil
}

// waitWhilePaused waits until the consumer is not paused. It first calls unsubscribePrevious, because the session does
// not handle deliveries during the pause.
func (s *session) waitWhilePaused(alive context.Context, unsubscribePrevious func() error) error {
	c := s.consumer
	left, reason := c.pauser.remaining()
	if left <= 0 {
		return nil
	}
	if err := unsubscribePrevious(); err != nil {
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
		changed := c.pauser.holdChanged() // before remaining, so that a later hold is not missed
		if left, _ = c.pauser.remaining(); left <= 0 {
			break
		}
		look.Reset(min(left, c.deadline.every))
		select {
		case <-look.C:
		case <-changed:
		case yielded := <-c.busy:
			close(yielded)
		case <-alive.Done():
			return context.Cause(alive)
		}
		s.checkDeadlines(time.Now())
	}
	c.Log.Info("resumed")
	c.owner.Resumed()
	return nil
}
