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
	"slices"
	"sync"
	"time"
)

// Config describes a queue.
type Config struct {
	Name string
	// Quorum gives the queue the semantics of RabbitMQ's quorum queues: failed deliveries are counted, and messages
	// given back keep the order in which they were.
	Quorum bool
	// TTL is how long a message may wait; or NoTTL.
	TTL time.Duration
	// DeadLetter is where messages go that expire or are rejected; nil: they are dropped.
	DeadLetter *DeadLetter
	// DeliveryLimit is how often a quorum queue takes a message back before it gives it up; negative: always.
	DeliveryLimit int64
	// Publish sends a dead letter on its way. It reports whether there were queues for it, and all of them accepted it.
	Publish func(*Message, Reason) bool
}

// Queue holds messages. All methods may be called at the same time, none blocks.
type Queue struct {
	config Config

	mu        sync.Mutex
	ready     ready
	unacked   int
	order     uint64
	deleted   bool
	timer     *time.Timer
	timerAt   time.Time // zero: the timer is not running
	consumers consumers
	dead      deadLetters
}

// New returns an empty queue.
func New(config Config) *Queue { return &Queue{config: config} }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.config.Name }

// Publish adds a message to the end of the queue. It reports whether the queue accepted it.
func (q *Queue) Publish(m *Message) bool {
	q.mu.Lock()
	defer q.unlock()
	if q.deleted {
		return false
	}
	it := &Item{Message: m, order: q.nextOrder()}
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
	return true
}

func (q *Queue) nextOrder() uint64 {
	q.order++
	return q.order
}

// Get takes the message at the head, which is then unacked unless noAck is set, and tells how many are left behind it.
// It returns nil when there is none.
func (q *Queue) Get(noAck bool) (it *Item, left int) {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	if it = q.ready.head(); it == nil {
		return nil, 0
	}
	q.ready.pop()
	if !noAck {
		q.unacked++
	}
	q.expire()
	return it, q.ready.len()
}

// Ack forgets messages that were delivered.
func (q *Queue) Ack(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.unacked -= len(items)
}

// Reject gives messages up that were delivered.
func (q *Queue) Reject(items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.unacked -= len(items)
	if q.deleted {
		return
	}
	for _, it := range items {
		q.die(it, Rejected)
	}
}

// Requeue takes messages back that were delivered, in the order given. Counted says that their deliveries failed, which
// brings them nearer to a quorum queue's delivery limit.
func (q *Queue) Requeue(counted bool, items ...*Item) {
	q.mu.Lock()
	defer q.unlock()
	q.unacked -= len(items)
	if q.deleted {
		return
	}
	for _, it := range items {
		it.Redelivered = true
		if q.config.Quorum {
			it.order = q.nextOrder()
			if counted {
				it.DeliveryCount++
			}
			if limit := q.config.DeliveryLimit; limit >= 0 && it.DeliveryCount > limit {
				q.die(it, DeliveryLimit)
				continue
			}
		}
		q.ready.giveBack(it)
	}
	q.dispatch()
}

// Purge drops the messages that are ready, and returns how many there were.
func (q *Queue) Purge() int {
	q.mu.Lock()
	defer q.unlock()
	n := q.ready.len()
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
	q.ready = ready{}
	q.dead.stop()
	if q.timer != nil {
		q.timer.Stop()
	}
	cancelled := slices.Clone(q.consumers.all)
	q.consumers = consumers{}
	q.unlock()
	for _, c := range cancelled {
		c.Receiver.QueueDeleted()
	}
	return n, failed
}

// Stats is what a queue has at a moment.
type Stats struct{ Ready, Unacked, Consumers int }

// Stats counts what the queue has.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.unlock()
	q.expire()
	return Stats{Ready: q.ready.len(), Unacked: q.unacked, Consumers: q.consumers.len()}
}
