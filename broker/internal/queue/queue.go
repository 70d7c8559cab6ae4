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
// locked queue: consumers take a message by [Receiver.Offer], which must not block, and dead letters are collected, to be
// published in order when somebody calls [Queue.SendDeadLetters]. So two queues are never locked at once, and however dead
// letters lead from queue to queue, no goroutine is led along.
package queue

import (
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Queue holds messages. All methods may be called at the same time. With a store, those block that say so.
type Queue struct {
	config Config

	mu        sync.Mutex
	ready     ready
	delayed   byDue // messages given back that are not to be ready yet
	unacked   int
	promised  int    // messages, by transactions
	unheld    func() // is to be called when nothing is unacked or promised; nil: nobody wants to know
	absent    int    // of those who have them, how many are no consumers, or not any more
	held      int64  // bytes that are unacked
	counts    stats.Counts
	order     uint64
	deleted   bool
	closed    bool
	timer     *time.Timer
	timerAt   time.Time // zero: the timer is not running
	consumers consumers
	dead      deadLetters
	lease     lease

	// With a store:
	stored   bool        // there is, or was, something in it
	loads    uint64      // from it, so far
	awaiting bool        // Committed is going to be called
	arrived  sync.Cond   // messages have been read, or could not be
	getting  int         // how many are waiting for that
	recheck  *time.Timer // whether there is memory again; nil: it is not running
	consumed consumed
	suspect  uint64 // messages up to this order may have been delivered before the store was opened
	died     uint64 // messages up to this order may have been dead-lettered before; see restoreDied
}

// New returns an empty queue.
func New(config Config) *Queue {
	q := &Queue{config: config, consumers: consumers{single: config.SingleActive, yields: config.Quorum}}
	q.arrived.L = &q.mu
	q.Touch()
	return q
}

// Config returns what the queue was made with.
func (q *Queue) Config() Config { return q.config }

// Publish adds a message to the end of the queue. It reports whether the queue accepted it, and which commit of the store
// will keep it; zero: it is not to be kept.
func (q *Queue) Publish(m *Message) (accepted bool, kept store.Ticket) {
	q.mu.Lock()
	defer q.unlock()
	if q.deleted || q.closed {
		return false, 0
	}
	if q.refuses(m) {
		if q.config.Overflow == RejectPublishDLX {
			if q.deadLetter(m, nil, MaxLength) {
				q.config.Meter.Add(m.Size())
			}
		}
		return false, 0
	}
	if m.past == nil { // RabbitMQ counts what clients publish, and no dead letters
		q.counts[stats.Publish]++
	}
	it := q.item(m)
	q.config.Meter.Add(m.Size())
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
		if it.holder != nil && q.keeps(m) { // else it is settled
			q.keep(it)
		}
		return true, it.ref.Ticket
	}
	it.Redelivered = m.failures > 0 || m.suspect // which a classic queue does not know of a message that it did not have to keep
	q.enter(it)
	kept = it.ref.Ticket
	q.trim() // even if it expires the next moment
	q.dispatch()
	return true, kept
}

// item is a message as it enters the queue. As in RabbitMQ 4, a dead letter brings along the number of its failed deliveries:
// the next quorum queue continues the count towards its delivery limit.
func (q *Queue) item(m *Message) *Item {
	it := &Item{Message: m, order: q.nextOrder(), priority: q.config.priority(m), deliveries: m.failures, Redelivered: q.config.Quorum && m.failures > 0 || m.suspect}
	it.bytes = q.config.bytes(m)
	if q.config.Quorum {
		it.acquired, it.presumed = m.failures, true
	}
	return it
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
		q.config.Meter.Add(-it.Message.Size())
		return
	}
	q.counts[way]++
	q.unacked++
	q.held += it.bytes
	if q.config.Quorum {
		if it.presumed {
			it.acquired, it.presumed = 0, false
		}
		it.acquired++
	}
}

// Get takes the message at the head, which is then unacked unless noAck is set, and tells how many are left behind it.
// Taken is called with it while the queue is locked, as [Receiver.Offer] is. It returns false when there is none. It blocks
// while the message is read from the disk, and returns an error if it cannot be read for now.
func (q *Queue) Get(noAck bool, taken func(it *Item, left int)) (found bool, err error) {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
	q.expire()
	it, err := q.awaitHead()
	if err != nil {
		return false, fmt.Errorf("the next message of queue %q cannot be read: %w", q.config.Name, err)
	}
	if it == nil {
		q.counts[stats.GetEmpty]++
		return false, nil
	}
	q.ready.remove(it)
	if !q.config.Quorum || noAck {
		q.expire() // otherwise a quorum queue counts what it is about to find expired
	}
	taken(it, q.ready.len())
	q.acquire(it, noAck, stats.Get, stats.GetNoAck)
	if !noAck {
		it.fetched = true
		q.absent++
	} else {
		q.unkeep(it)
	}
	q.expire()
	return true, nil
}

// awaitHead returns the message at the head, or nil if there is none. It may have to wait until it is read, but does not
// wait for what could not be read to become readable: whoever asks may have more to do.
func (q *Queue) awaitHead() (*Item, error) {
	q.getting++
	defer func() { q.getting-- }()
	for {
		q.expire()
		it := q.ready.head()
		if it != nil || q.ready.len() == 0 || q.closed {
			return it, nil
		}
		if err := q.ready.unreadable(); err != nil {
			return nil, err
		}
		if q.sendingDue() {
			// Nothing more is read before those are sent that have just expired.
			q.unlock()
			q.mu.Lock()
			continue
		}
		q.fetch()
		q.arrived.Wait()
	}
}

// Quorum reports whether it has the semantics of a quorum queue.
func (q *Queue) Quorum() bool { return q.config.Quorum }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.config.Name }

// Purge drops the messages that are ready, and returns how many there were.
func (q *Queue) Purge() int {
	q.mu.Lock()
	defer q.unlock()
	n := q.ready.len()
	q.config.Meter.Add(-q.ready.size)
	q.unkeepReady()
	q.ready = ready{}
	q.arrived.Broadcast()
	return n
}

// Condition is what must hold for a queue to be deleted.
type Condition struct {
	Unused, Empty bool
	Over          bool // its lease is
}

// Delete ends the queue, drops its messages without dead-lettering them, and cancels its consumers. It returns the number
// of messages that were ready. When a condition does not hold, the queue stays, and Delete names that condition.
func (q *Queue) Delete(if_ Condition) (n int, failed Condition) {
	q.mu.Lock()
	n = q.ready.len()
	failed = Condition{
		Unused: if_.Unused && q.consumers.len() > 0,
		Empty:  if_.Empty && n > 0,
		Over:   if_.Over && !q.deleted && q.leased(),
	}
	if q.deleted || failed != (Condition{}) {
		q.unlock()
		return n, failed
	}
	q.deleted = true
	q.unkeepAll()
	q.arrived.Broadcast()
	q.config.Meter.Add(-q.ready.size)
	for _, it := range q.delayed {
		q.config.Meter.Add(-it.Message.Size())
	}
	q.ready, q.delayed = ready{}, nil
	q.config.Meter.Add(-q.dead.stop())
	q.stopTimers()
	cancelled := q.consumers.all
	q.consumers = consumers{}
	q.unlock()
	for _, c := range cancelled {
		c.Receiver.QueueDeleted()
	}
	return n, failed
}

// Promise tells that a transaction is going to publish to the queue, or with a negative number that it is over.
func (q *Queue) Promise(n int) {
	q.mu.Lock()
	defer q.unlock()
	q.promised += n
}

// WhenUnheld has a function called as soon as no message of a deleted queue is unacked and no transaction is going to publish
// to it: nobody needs to know the queue then. That may be at once.
func (q *Queue) WhenUnheld(unheld func()) {
	q.mu.Lock()
	defer q.unlock()
	q.unheld = unheld
}

func (q *Queue) stopTimers() {
	for _, timer := range []*time.Timer{q.timer, q.lease.timer, q.dead.retry, q.recheck} {
		if timer != nil {
			timer.Stop()
		}
	}
}
