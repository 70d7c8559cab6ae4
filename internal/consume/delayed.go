package consume

import (
	"context"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

// delayedAcks are the acks of a session that wait for their time.
type delayedAcks struct {
	mu      sync.Mutex
	waiting []delayedAck // in order of the calls of AckAt; non-empty while ackDelayed runs
}

type delayedAck struct {
	at time.Time
	d  *Delivery
}

// maxDelayed limits the number of deliveries that a session holds for AckAt, because a lost connection duplicates them. It is high,
// because they wait only a few seconds, and a worker whose messages all fail should not stop.
const maxDelayed = 1 << 14

// AckAt acknowledges the burst and the delivery at the given time, or slightly later. The session meanwhile receives other messages,
// and a drain waits. If the session ends first, AckAt logs that the message is duplicated.
func (d *Delivery) AckAt(at time.Time) {
	s := d.session
	if d.term != nil || d.Leased() { // the attempt must not end first
		if err := retry.Sleep(d.Context(), time.Until(at)); err != nil {
			s.consumer.Log.Warn("messages duplicated", "count", 1+len(d.Burst), "reason", err)
			return
		}
		d.AckAll()
		return
	}
	d.hold(untilAcked, max(maxDelayed, maxHeld*s.consumer.Prefetch))
	s.consumer.attempts.Add(1)
	s.delayed.mu.Lock()
	defer s.delayed.mu.Unlock()
	next := delayedAck{at, d.withoutContent()}
	if s.delayed.waiting = append(s.delayed.waiting, next); len(s.delayed.waiting) == 1 {
		go s.ackDelayed(next)
	}
}

// withoutContent returns a copy of a delivery that can only be settled and released. It needs little memory.
func (d *Delivery) withoutContent() *Delivery {
	small := &Delivery{session: d.session, held: d.held, heldOf: d.heldOf}
	small.Tag = d.Tag
	for _, other := range d.Burst {
		small.Burst = append(small.Burst, other.withoutContent())
	}
	return small
}

// ackDelayed writes the delayed acks, from the first one on. It returns when none waits.
func (s *session) ackDelayed(next delayedAck) {
	lost := 0
	for found := true; found; next, found = s.delayed.remove() {
		if retry.Sleep(s.ctx, time.Until(next.at)) == nil {
			next.d.AckAll()
		} else {
			lost += 1 + len(next.d.Burst)
		}
		next.d.Release()
		s.consumer.attempts.Done()
	}
	if lost > 0 {
		s.consumer.Log.Warn("messages duplicated", "count", lost, "reason", context.Cause(s.ctx))
	}
}

// remove removes the first ack and returns the next.
func (a *delayedAcks) remove() (next delayedAck, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[0] = delayedAck{}
	if a.waiting = a.waiting[1:]; len(a.waiting) == 0 {
		a.waiting = nil
		return next, false
	}
	return a.waiting[0], true
}
