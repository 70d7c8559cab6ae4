package queue

import (
	"errors"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Receiver is the receiving side of a consumer. It decides when it accepts messages.
type Receiver interface {
	// Offer hands over a message. It returns false if the consumer has no credit for the message. The queue then stops
	// offering messages until [Queue.Resume]. The queue calls Offer under its lock, so Offer must not block and must not
	// call the queue.
	Offer(*Item) bool
	// QueueDeleted reports that the queue was deleted. The queue calls it without locks.
	QueueDeleted()
}

// Consumer is a subscription to a queue.
type Consumer struct {
	Receiver  Receiver
	NoAck     bool  // the queue settles a message as soon as the consumer accepts it
	Exclusive bool  // no other consumer may subscribe
	Priority  int64 // consumers with the highest priority receive all messages while they have credit
	Prefetch  int   // maximum number of unacked messages; 0: unlimited

	waiting   bool // refused a message, or is exhausted
	exhausted bool // has Prefetch unacked messages, as counted by the queue
	unacked   int  // number of unacked messages
	cancelled bool // cancelled while it had unacked messages
}

// consumers is a round-robin scheduler. A consumer that received a message moves behind the other consumers of its priority.
type consumers struct {
	single     bool        // only the first consumer of all is available
	preemptive bool        // a consumer with a higher priority replaces the single active consumer
	all        []*Consumer // sorted by priority, then by arrival
	available  []*Consumer // consumers that accept messages, in the same order

	leaving *Consumer // previous active consumer; the first of all becomes active after leaving has settled its messages
}

func (cs *consumers) len() int { return len(cs.all) }

// join inserts a consumer behind the consumers of equal or higher priority.
func join(list []*Consumer, c *Consumer) []*Consumer {
	i := slices.IndexFunc(list, func(other *Consumer) bool { return other.Priority < c.Priority })
	if i < 0 {
		return append(list, c)
	}
	return slices.Insert(list, i, c)
}

func (cs *consumers) add(c *Consumer) {
	if cs.single {
		cs.addSingle(c)
		return
	}
	cs.all = join(cs.all, c)
	cs.available = join(cs.available, c)
}

func (cs *consumers) addSingle(c *Consumer) {
	switch {
	case len(cs.all) == 0:
		cs.all = []*Consumer{c}
	case !cs.preemptive || c.Priority <= cs.all[0].Priority:
		cs.all = slices.Concat(cs.all[:1], join(cs.all[1:], c))
		return
	default:
		active := cs.all[0]
		if cs.leaving == nil && active.unacked > 0 {
			cs.leaving = active
		}
		cs.all = slices.Concat([]*Consumer{c}, join(cs.all[1:], active))
	}
	cs.activate()
}

// active returns the single active consumer, or nil.
func (cs *consumers) active() *Consumer {
	if cs.leaving != nil || len(cs.all) == 0 {
		return cs.leaving
	}
	return cs.all[0]
}

// activate makes the first consumer the single active consumer, unless another consumer is still leaving.
func (cs *consumers) activate() {
	cs.available = nil
	if cs.leaving == nil && len(cs.all) > 0 {
		cs.all[0].waiting = false
		cs.available = []*Consumer{cs.all[0]}
	}
}

// settled records that a consumer has no unacked messages left. It reports whether another consumer becomes active.
func (cs *consumers) settled(c *Consumer) bool {
	if cs.leaving != c {
		return false
	}
	cs.leaving = nil
	cs.activate()
	return true
}

func (cs *consumers) remove(c *Consumer) bool {
	i := slices.Index(cs.all, c)
	if i < 0 {
		return false
	}
	cs.all = slices.Delete(cs.all, i, i+1)
	if i := slices.Index(cs.available, c); i >= 0 {
		cs.available = slices.Delete(cs.available, i, i+1)
	}
	if cs.leaving == c {
		cs.leaving = nil
		cs.activate()
	} else if cs.single && i == 0 {
		cs.activate()
	}
	return true
}

// refused makes the first available consumer unavailable until it is resumed.
func (cs *consumers) refused(c *Consumer) {
	c.waiting = true
	cs.available = cs.available[1:]
}

// exhausted removes a consumer from the available consumers, at any position.
func (cs *consumers) exhausted(c *Consumer) {
	c.waiting, c.exhausted = true, true
	cs.available = slices.DeleteFunc(cs.available, func(other *Consumer) bool { return other == c })
}

// resumed makes a waiting consumer available again. It reports whether the consumer is available.
func (cs *consumers) resumed(c *Consumer) bool {
	if !c.waiting {
		return false
	}
	c.waiting, c.exhausted = false, false
	if !slices.Contains(cs.all, c) || cs.single && (cs.leaving != nil || cs.all[0] != c) {
		return false
	}
	cs.available = join(cs.available, c)
	return true
}

// served moves the first available consumer behind the other consumers of its priority.
func (cs *consumers) served(c *Consumer) {
	if len(cs.available) > 1 && cs.available[1].Priority == c.Priority {
		cs.available = join(cs.available[1:], c)
	}
}

// Errors of [Queue.Consume].
var (
	ErrDeleted = errors.New("queue deleted")
	ErrInUse   = errors.New("exclusive consumer cannot share the queue with another consumer")
)

// Consume adds a consumer. It calls added before it offers the first message. Like [Receiver.Offer], added must not block.
// Consume returns ErrDeleted or ErrInUse.
func (q *Queue) Consume(c *Consumer, added func()) error {
	q.mu.Lock()
	defer q.unlock()
	switch {
	case q.deleted:
		return ErrDeleted
	case !q.admits(c):
		return ErrInUse
	}
	q.consumers.add(c)
	added()
	q.dispatch()
	return nil
}

func (q *Queue) admits(c *Consumer) bool {
	if q.config.Quorum {
		return true // quorum queues do not support exclusive consumers
	}
	if q.config.SingleActive && c.Exclusive {
		return false // both options permit only one consumer, and cannot be combined
	}
	return len(q.consumers.all) == 0 || !c.Exclusive && !q.consumers.all[0].Exclusive
}

// Cancel removes a consumer. It reports whether the consumer was the last one. The consumer keeps its unacked messages.
func (q *Queue) Cancel(c *Consumer) (last bool) {
	q.mu.Lock()
	defer q.unlock()
	if !q.consumers.remove(c) {
		return false
	}
	if c.unacked > 0 {
		c.cancelled = true
		q.otherHolders++
	}
	q.dispatch() // another consumer may be the single active consumer now
	if q.consumers.len() > 0 {
		return false
	}
	q.touch()
	return true
}

// Resume reports that a consumer has credit again after it refused a message.
func (q *Queue) Resume(c *Consumer) {
	q.Credit(c)
	q.Dispatch()
}

// Credit makes a consumer available again. Unlike Resume, it does not deliver messages. The caller can therefore requeue
// messages before it calls Dispatch, so that they precede other deliveries to the consumer.
func (q *Queue) Credit(c *Consumer) {
	q.mu.Lock()
	defer q.unlock()
	q.consumers.resumed(c)
}

// Dispatch delivers messages after calls of Credit.
func (q *Queue) Dispatch() {
	q.mu.Lock()
	defer q.unlock()
	q.dispatch()
}

// dispatch delivers messages until the queue has no loaded message at its head, or no consumer accepts one.
func (q *Queue) dispatch() {
	for {
		q.expire()
		head := q.ready.head()
		if head == nil || !q.offer(head) {
			return
		}
		q.ready.remove(head)
	}
}

// offer delivers a message to the next consumer that accepts it. It reports whether a consumer accepted the message.
func (q *Queue) offer(it *Item) bool {
	for len(q.consumers.available) > 0 {
		c := q.consumers.available[0]
		if !c.Receiver.Offer(it) {
			q.consumers.refused(c)
			continue
		}
		q.consumers.served(c)
		q.acquire(it, c.NoAck, stats.Deliver, stats.DeliverNoAck)
		if c.NoAck {
			q.deleteSaved(it)
		} else {
			it.holder = c
			c.unacked++
			if q.config.Quorum && c.unacked == c.Prefetch {
				// A quorum queue counts the credit itself. A consumer without credit becomes unavailable and does not lose
				// its turn.
				q.consumers.exhausted(c)
			}
		}
		return true
	}
	return false
}
