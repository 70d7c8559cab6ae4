// Package queue implements a RabbitMQ queue, with message order, round-robin delivery to consumers, TTL and
// dead-lettering.
//
//	Publish ─► ready ─► Offer to a consumer ─► unacked ─► Ack: removed
//	             ▲  │                             │
//	             │  └─ deadline at the head ──┐   ├─ Requeue: back to ready
//	             └────────────────────────────┼───┘
//	                                          ▼   └─ Reject
//	                                   dead-lettered, or dropped
//
// A queue works in the goroutine of the caller, under a lock. Only timers and reads from the store use other
// goroutines. One timer serves expiry and delayed retries. A consumer accepts a message in [Receiver.Offer], which must
// not block and must not call the queue. The queue collects dead letters, and [Queue.SendDeadLetters] publishes them in
// order, without holding the lock. Therefore a goroutine never locks two queues at the same time, and never follows a
// chain of dead-letter queues.
package queue

import (
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/clock"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
)

// Queue holds messages. It is safe for concurrent use. If the queue has a store, Get and Consumed may wait for the disk.
type Queue struct {
	config Config

	mu           sync.Mutex
	ready        ready
	delayed      byDue // messages that wait for a delayed retry, or for the end of Config.Delay
	unacked      int
	promised     int    // number of messages that open transactions would publish to the queue
	onUnheld     func() // called once when both unacked and promised are 0
	otherHolders int    // unacked messages from basic.get, plus cancelled consumers with unacked messages
	held         int64  // size of the unacked messages in bytes
	counts       stats.Counts
	order        uint64
	deleted      bool
	closed       bool
	timer        *clock.Timer
	timerAt      time.Time // zero if the timer is not running
	consumers    consumers
	dead         deadLetters
	ttl          queueTTL

	// The remaining fields are for queues with a store.

	stored   bool        // the store has or had messages
	spilling []*Item     // messages in delayed to evict from memory after their commit
	loads    uint64      // number of loads
	awaiting bool        // Committed is pending
	arrived  sync.Cond   // signals the end of a load, successful or not
	getting  int         // number of callers that wait for arrived
	recheck  *time.Timer // timer of the next memory check, or nil

	reloads map[uint8]*time.Timer // timers for repeating failed loads, by priority
	loading alarm.Alarm           // raised during a load for which consumers wait

	consumed consumedState
	suspect  uint64 // messages up to this order may have been delivered before a crash
	died     uint64 // messages up to this order may have been dead-lettered before a crash; see restoreDied

	diedBefore time.Time // messages that expire later were not dead-lettered before the crash
}

// New returns an empty queue.
func New(config Config) *Queue {
	q := &Queue{config: config, consumers: consumers{single: config.SingleActive, preemptive: config.Quorum}}
	q.arrived.L = &q.mu
	q.Touch()
	return q
}

// Config returns the configuration of the queue.
func (q *Queue) Config() Config {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.config
}

// Apply changes the settings of the queue. A new limit drops messages at once, if the overflow behavior is drop-head. Waiting
// messages keep their TTL.
func (q *Queue) Apply(s Settings) {
	q.mu.Lock()
	defer q.unlock()
	before := q.config.Settings
	q.config.Settings = s
	if q.deleted || q.closed {
		return
	}
	if s.Expires != before.Expires {
		q.restartTTL()
	}
	q.trim()
}

// Publish adds a message to the end of the queue. It reports whether the queue accepted the message. The ticket
// identifies the commit that makes the message durable, and is 0 if the message is not saved.
func (q *Queue) Publish(m *Message) (accepted bool, ticket store.Ticket) {
	q.mu.Lock()
	defer q.unlock()
	if q.deleted || q.closed {
		return false, 0
	}
	if q.config.Delay != nil {
		return true, q.wait(m)
	}
	if q.refuses(m) {
		if q.config.Overflow == RejectPublishDLX {
			if q.deadLetter(m, nil, MaxLength) {
				q.config.Meter.Add(m.Size())
			}
		}
		return false, 0
	}
	if m.history == nil { // like RabbitMQ, do not count dead letters
		q.counts[stats.Publish]++
	}
	it := q.item(m)
	q.config.Meter.Add(m.Size())
	ttl := q.config.TTL
	if m.TTL != NoTTL && (ttl == NoTTL || m.TTL < ttl) {
		ttl = m.TTL
	}
	if ttl != NoTTL {
		it.deadline = q.config.Clock.Now().Add(ttl)
		q.expire()
	}
	// A message that a consumer accepts immediately does not expire, even with a TTL of 0.
	if q.ready.len() == 0 && q.offer(it) {
		if it.holder != nil && q.mustSave(m) { // if there is no holder, the message is already settled
			q.save(it)
		}
		return true, it.ref.Ticket
	}
	it.Redelivered = m.failures > 0 || m.suspect // in a classic queue, failures count only if the message had to wait
	q.enter(it)
	ticket = it.ref.Ticket
	q.trim() // before dispatch, so that the new message counts against the limits even if it expires immediately
	q.dispatch()
	return true, ticket
}

// item returns the item for a message that enters the queue. As in RabbitMQ 4, a dead letter contains the number of its
// failed deliveries. The next quorum queue continues to count from this number, up to its delivery limit.
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

// acquire records a delivery. It increments the counter counterNoAck if noAck is set, and otherwise counter.
func (q *Queue) acquire(it *Item, noAck bool, counter, counterNoAck stats.Kind) {
	if it.Redelivered {
		q.counts[stats.Redeliver]++
	}
	if noAck {
		q.counts[counterNoAck]++
		q.config.Meter.Add(-it.Message.Size())
		return
	}
	q.counts[counter]++
	q.unacked++
	q.held += it.bytes
	if q.config.Quorum {
		if it.presumed {
			it.acquired, it.presumed = 0, false
		}
		it.acquired++
	}
}

// Get removes the message at the head from the ready messages. Unless noAck is set, the message is then unacked. Get
// calls the function taken with the message and the number of remaining messages, under the lock of the queue. Like
// [Receiver.Offer], taken must not block. If the queue is empty, Get returns false. If the message is only on disk, Get
// blocks until it is loaded, and returns an error if the load fails.
func (q *Queue) Get(noAck bool, taken func(it *Item, left int)) (found bool, err error) {
	q.mu.Lock()
	defer q.unlock()
	q.touch()
	q.expire()
	it, err := q.awaitHead()
	if err != nil {
		return false, fmt.Errorf("cannot read the next message of queue %q: %w", q.config.Name, err)
	}
	if it == nil {
		q.counts[stats.GetEmpty]++
		return false, nil
	}
	q.ready.remove(it)
	if !q.config.Quorum || noAck {
		q.expire() // so that the number of remaining messages does not include expired messages
	}
	taken(it, q.ready.len())
	q.acquire(it, noAck, stats.Get, stats.GetNoAck)
	if !noAck {
		it.fetched = true
		q.otherHolders++
	} else {
		q.deleteSaved(it)
	}
	q.expire()
	return true, nil
}

// awaitHead returns the message at the head, or nil if the queue is empty or closed. It waits until the message is
// loaded. If a load fails, awaitHead returns the error and does not wait for the next attempt.
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
			// Request the publication of the expired messages before the next load.
			q.unlock()
			q.mu.Lock()
			continue
		}
		q.fetch()
		q.arrived.Wait()
	}
}

// Quorum reports whether the queue has the semantics of a quorum queue.
func (q *Queue) Quorum() bool { return q.config.Quorum }

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.config.Name }

// Purge drops all ready messages and returns their number.
func (q *Queue) Purge() int {
	q.mu.Lock()
	defer q.unlock()
	n := q.ready.len()
	q.config.Meter.Add(-q.ready.size)
	q.deleteSavedReady()
	q.ready = ready{}
	q.arrived.Broadcast()
	return n
}

// Condition contains conditions for the deletion of a queue.
type Condition struct {
	Unused, Empty bool
	Over          bool // the queue TTL has expired
}

// Delete deletes the queue, drops its messages without dead-lettering, and cancels its consumers. It returns the number
// of ready messages. If a condition is not met, Delete keeps the queue and sets the condition in failed.
func (q *Queue) Delete(if_ Condition) (n int, failed Condition) {
	q.mu.Lock()
	n = q.ready.len()
	failed = Condition{
		Unused: if_.Unused && q.consumers.len() > 0,
		Empty:  if_.Empty && n > 0,
		Over:   if_.Over && !q.deleted && q.ttlRunning(),
	}
	if q.deleted || failed != (Condition{}) {
		q.unlock()
		return n, failed
	}
	q.deleted = true
	q.deleteSavedAll()
	q.arrived.Broadcast()
	q.config.Meter.Add(-q.ready.size)
	for _, it := range q.delayed {
		q.config.Meter.Add(-it.size())
	}
	q.ready, q.delayed, q.spilling = ready{}, nil, nil
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

// Promise adds n to the number of messages that open transactions would publish to the queue. When a transaction is
// complete, the caller passes a negative n.
func (q *Queue) Promise(n int) {
	q.mu.Lock()
	defer q.unlock()
	q.promised += n
}

// WhenUnheld calls f when the queue has neither unacked messages nor messages promised by open transactions, possibly
// before WhenUnheld returns. The broker can then forget a deleted queue.
func (q *Queue) WhenUnheld(f func()) {
	q.mu.Lock()
	defer q.unlock()
	q.onUnheld = f
}

func (q *Queue) stopTimers() {
	for _, timer := range []*clock.Timer{q.timer, q.ttl.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, timer := range []*time.Timer{q.dead.retry, q.recheck} {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, timer := range q.reloads {
		timer.Stop()
	}
}
