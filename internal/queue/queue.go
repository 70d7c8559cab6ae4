// Package queue is a RabbitMQ queue: messages in order, consumers in turn, time to live and dead-lettering.
//
//	Publish ─► ready ─► Offer to a consumer ─► unacked ─► Ack: gone
//	             ▲  │                             │
//	             │  └─ deadline at the head ──┐   ├─ Requeue: back to ready
//	             └────────────────────────────┼───┘
//	                                          ▼   └─ Reject
//	                                   dead-lettered, or dropped
//
// Everything happens at once in the caller's goroutine, under the queue's lock: there is no goroutine per queue, and one
// timer, for the head. What leaves the queue leaves it in one of two ways, neither of which can wait or come back into the
// locked queue: consumers take a message by [Receiver.Offer], which must not block, and dead letters are collected under
// the lock and published after it is released, in order, by whoever released it. So two queues are never locked at once,
// and dead letters in a circle cannot deadlock.
package queue

import (
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/stats"
)

// Queue holds messages. All methods may be called at the same time, none blocks.
type Queue struct {
	config Config

	mu        sync.Mutex
	ready     ready
	delayed   byDue // messages given back that are not to be ready yet
	unacked   int
	held      int64 // bytes of the bodies that are unacked
	counts    stats.Counts
	order     uint64
	deleted   bool
	timer     *time.Timer
	timerAt   time.Time // zero: the timer is not running
	consumers consumers
	dead      deadLetters
	lease     lease
}

// New returns an empty queue.
func New(config Config) *Queue {
	q := &Queue{config: config, consumers: consumers{single: config.SingleActive}}
	q.Touch()
	return q
}

// Config returns what the queue was made with.
func (q *Queue) Config() Config { return q.config }

// Publish adds a message to the end of the queue. It reports whether the queue accepted it.
func (q *Queue) Publish(m *Message) bool {
	q.mu.Lock()
	defer q.unlock()
	if q.deleted {
		return false
	}
	if q.refuses(m) {
		if q.config.Overflow == RejectPublishDLX {
			q.deadLetter(m, MaxLength)
		}
		return false
	}
	q.counts[stats.Publish]++
	it := &Item{Message: m, order: q.nextOrder(), priority: q.config.priority(m)}
	q.config.Meter.add(m.size())
	ttl := q.config.TTL
	if m.TTL != NoTTL && (ttl == NoTTL || m.TTL < ttl) {
		ttl = m.TTL
	}
	if ttl != NoTTL {
		it.deadline = time.Now().Add(ttl)
		q.expire()
	}
	// Taken at once, a message does not expire even with a time to live of zero.
	if q.ready.len() == 0 && q.offer(it) {
		return true
	}
	q.ready.push(it)
	q.dispatch()
	q.trim()
	return true
}

func (q *Queue) nextOrder() uint64 {
	q.order++
	return q.order
}

// acquire notes that a message was delivered, in one of two ways.
func (q *Queue) acquire(it *Item, noAck bool, way, wayNoAck stats.Kind) {
	if it.Redelivered {
		q.counts[stats.Redeliver]++
	}
	if noAck {
		q.counts[wayNoAck]++
		q.config.Meter.add(-it.Message.size())
		return
	}
	q.counts[way]++
	q.unacked++
	q.held += int64(len(it.Message.Body))
	if q.config.Quorum {
		it.acquired++
	}
}

// Get takes the message at the head, which is then unacked unless noAck is set, and tells how many are left behind it.
// Taken is called with it while the queue is locked, as [Receiver.Offer] is. It returns false when there is none.
func (q *Queue) Get(noAck bool, taken func(it *Item, left int)) bool {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
	q.expire()
	it := q.ready.head()
	if it == nil {
		q.counts[stats.GetEmpty]++
		return false
	}
	q.ready.remove(it)
	q.expire()
	taken(it, q.ready.len())
	q.acquire(it, noAck, stats.Get, stats.GetNoAck)
	return true
}

// Ack forgets messages that were delivered.
func (q *Queue) Ack(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.settle(items)
	q.counts[stats.Ack] += uint64(len(items))
	q.forget(items)
}

// settle takes back the note that messages were delivered.
func (q *Queue) settle(items []*Item) {
	q.unacked -= len(items)
	for _, it := range items {
		q.held -= int64(len(it.Message.Body))
	}
}

// forget gives up the memory of messages that leave the queue for nowhere.
func (q *Queue) forget(items []*Item) {
	var size int64
	for _, it := range items {
		size += it.Message.size()
	}
	q.config.Meter.add(-size)
}

// Reject gives messages up that were delivered.
func (q *Queue) Reject(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.settle(items)
	if q.deleted {
		q.forget(items)
		return
	}
	for _, it := range items {
		q.die(it, Rejected)
	}
}

// Requeue takes messages back that were delivered, in the order given. Failed says that their deliveries failed, rather
// than that the consumer gave them back on purpose: that brings them nearer to a quorum queue's delivery limit.
func (q *Queue) Requeue(failed bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.settle(items)
	if q.deleted {
		q.forget(items)
		return
	}
	for _, it := range items {
		it.Redelivered = true
		if q.config.Quorum && !q.takeBack(it, failed) {
			continue
		}
		q.ready.giveBack(it)
	}
	q.dispatch()
	q.trim()
}

// takeBack does what a quorum queue does before a message is ready again, and reports whether it is so at once.
func (q *Queue) takeBack(it *Item, failed bool) bool {
	it.order = q.nextOrder()
	if failed {
		it.deliveries++
	}
	if limit := q.config.DeliveryLimit; limit >= 0 && it.deliveries > limit {
		q.die(it, DeliveryLimit)
		return false
	}
	if delay := q.config.Retry.delay(it, failed); delay > 0 {
		q.holdBack(it, delay)
		return false
	}
	return true
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.config.Name }

// Purge drops the messages that are ready, and returns how many there were.
func (q *Queue) Purge() int {
	q.mu.Lock()
	defer q.unlock()
	n := q.ready.len()
	q.config.Meter.add(-q.ready.size)
	q.ready = ready{}
	return n
}

// Condition is what must hold for a queue to be deleted.
type Condition struct{ Unused, Empty bool }

// Delete ends the queue, drops its messages without dead-lettering them, and cancels its consumers. It returns the number
// of messages that were ready. When a condition does not hold, the queue stays, and Delete names that condition.
func (q *Queue) Delete(if_ Condition) (n int, failed Condition) {
	q.mu.Lock()
	n = q.ready.len()
	failed = Condition{
		Unused: if_.Unused && q.consumers.len() > 0,
		Empty:  if_.Empty && n > 0,
	}
	if q.deleted || failed != (Condition{}) {
		q.unlock()
		return n, failed
	}
	q.deleted = true
	q.config.Meter.add(-q.ready.size)
	for _, l := range q.delayed {
		q.config.Meter.add(-l.item.Message.size())
	}
	q.ready, q.delayed = ready{}, nil
	q.config.Meter.add(-q.dead.stop())
	for _, timer := range []*time.Timer{q.timer, q.lease.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
	cancelled := q.consumers.all
	q.consumers = consumers{}
	q.unlock()
	for _, c := range cancelled {
		c.Receiver.QueueDeleted()
	}
	return n, failed
}
