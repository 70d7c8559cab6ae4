package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Ack forgets messages that were delivered.
func (q *Queue) Ack(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	next := q.settle(items)
	q.counts[stats.Ack] += uint64(len(items))
	q.forget(items)
	if next {
		q.dispatch()
	}
}

// settle takes back the note that messages were delivered. It reports whether there is another consumer now to be given
// some.
func (q *Queue) settle(items []*Item) (next bool) {
	q.unacked -= len(items)
	for _, it := range items {
		q.held -= it.bytes
		next = q.release(it) || next
	}
	return next
}

// release notes that whoever had a message has it no longer.
func (q *Queue) release(it *Item) (next bool) {
	gone := it.fetched
	if c := it.holder; c != nil {
		c.unacked--
		gone = c.gone && c.unacked == 0
		if c.exhausted {
			// The receiver may have known of it when it took its last message, and not have asked to be resumed.
			next = q.consumers.resumed(c)
		}
		if c.unacked == 0 {
			next = q.consumers.settled(c) || next
		}
	}
	if gone {
		q.absent--
	}
	it.holder, it.fetched = nil, false
	return next
}

// forget gives up messages that leave the queue for nowhere.
func (q *Queue) forget(items []*Item) {
	var size int64
	for _, it := range items {
		size += it.Message.Size()
		q.unkeep(it)
	}
	q.config.Meter.Add(-size)
}

// Reject gives messages up that were delivered. Failed is as for [Queue.Requeue].
func (q *Queue) Reject(failed bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	next := q.settle(items)
	if q.deleted {
		q.forget(items)
		return
	}
	for _, it := range items {
		it.Redelivered = true // if it comes back, because the broker ended before it was dead-lettered
		if failed {
			it.deliveries++
		}
		q.die(it, Rejected)
	}
	if next {
		q.dispatch()
	}
}

// Requeue takes messages back that were delivered, in the order given. Failed says that their deliveries failed, rather
// than that the consumer gave them back on purpose: that brings them nearer to a quorum queue's delivery limit, and goes
// along with them where they are dead-lettered.
func (q *Queue) Requeue(failed bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	var served []*Consumer
	if q.config.Quorum {
		// A quorum queue gives credit for messages that come back before it looks who is to have them next.
		served = holders(items)
	}
	q.settle(items)
	if q.deleted {
		q.forget(items)
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
		ready := !q.config.Quorum || q.takeBack(it, failed)
		q.update(it, from)
		if ready {
			q.ready.giveBack(it)
		} else {
			q.holdBack(it)
		}
	}
	if !q.config.Quorum {
		q.trim() // a classic queue looks at its limits before its consumers
	}
	q.dispatch()
	q.trim()
}

// holders are the consumers that have these messages.
func holders(items []*Item) (all []*Consumer) {
	for _, it := range items {
		if it.holder != nil && !slices.Contains(all, it.holder) {
			all = append(all, it.holder)
		}
	}
	return all
}

// takeBack gives a message its new place in a quorum queue, and reports whether it is ready at once.
func (q *Queue) takeBack(it *Item, failed bool) bool {
	it.order, it.priority, it.due = q.nextOrder(), quorumReturned, time.Time{}
	delay := q.config.Retry.delay(it, failed)
	if delay > 0 {
		it.due = time.Now().Add(delay)
	}
	return delay == 0
}
