package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Ack removes delivered messages that a consumer has processed.
func (q *Queue) Ack(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	next := q.settle(items)
	q.counts[stats.Ack] += uint64(len(items))
	q.drop(items)
	if next {
		q.dispatch()
	}
}

// settle records that messages are no longer unacked. It reports whether a consumer became available, in which case the
// caller must call dispatch.
func (q *Queue) settle(items []*Item) (next bool) {
	q.unacked -= len(items)
	for _, it := range items {
		q.held -= it.bytes
		next = q.release(it) || next
	}
	return next
}

// release removes the holder of a message. It reports whether a consumer became available.
func (q *Queue) release(it *Item) (next bool) {
	holderDone := it.fetched
	if c := it.holder; c != nil {
		c.unacked--
		holderDone = c.cancelled && c.unacked == 0
		if c.exhausted {
			// The queue resumes the consumer, because its receiver did not refuse a message and does not call Resume.
			next = q.consumers.resumed(c)
		}
		if c.unacked == 0 {
			next = q.consumers.settled(c) || next
		}
	}
	if holderDone {
		q.otherHolders--
	}
	it.holder, it.fetched = nil, false
	return next
}

// drop removes messages without dead-lettering them.
func (q *Queue) drop(items []*Item) {
	var size int64
	for _, it := range items {
		size += it.Message.Size()
		q.deleteSaved(it)
	}
	q.config.Meter.Add(-size)
}

// Reject dead-letters or drops delivered messages. See [Queue.Requeue] for failed.
func (q *Queue) Reject(failed bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	next := q.settle(items)
	if q.deleted {
		q.drop(items)
		return
	}
	for _, it := range items {
		it.Redelivered = true // in case the broker restarts before it has dead-lettered the message
		if failed {
			it.deliveries++
		}
		q.die(it, Rejected)
	}
	if next {
		q.dispatch()
	}
}

// Requeue requeues delivered messages in the given order. If failed is set, the deliveries have failed; otherwise, the
// consumer requeued the messages intentionally. Failed deliveries count towards the delivery limit of a quorum queue,
// and a dead letter contains their number.
func (q *Queue) Requeue(failed bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	var served []*Consumer
	if q.config.Quorum {
		// A quorum queue returns the credit for requeued messages to their consumers before it selects the next
		// consumer.
		served = holders(items)
	}
	q.settle(items)
	if q.deleted {
		q.drop(items)
		return
	}
	for _, c := range served {
		q.consumers.resumed(c)
	}
	for _, it := range items {
		it.Redelivered = true
		if failed {
			it.deliveries++
		}
		from := q.key(it)
		if limit := q.config.DeliveryLimit; q.config.Quorum && limit >= 0 && it.deliveries > limit {
			q.die(it, DeliveryLimit)
			continue
		}
		ready := !q.config.Quorum || q.reposition(it, failed)
		q.update(it, from)
		if ready {
			q.ready.requeue(it)
		} else {
			q.delay(it)
		}
	}
	if !q.config.Quorum {
		q.trim() // a classic queue enforces its limits before it delivers messages
	}
	q.dispatch()
	q.trim()
}

// holders returns the consumers that hold the given messages.
func holders(items []*Item) (all []*Consumer) {
	for _, it := range items {
		if it.holder != nil && !slices.Contains(all, it.holder) {
			all = append(all, it.holder)
		}
	}
	return all
}

// reposition sets the new position of a requeued message in a quorum queue, and reports whether the message is ready
// without a delay.
func (q *Queue) reposition(it *Item, failed bool) bool {
	it.order, it.priority, it.due = q.nextOrder(), quorumReturned, time.Time{}
	delay := q.config.Retry.delay(it, failed)
	if delay > 0 {
		it.due = q.config.Clock.Now().Add(delay)
	}
	return delay == 0
}
