package queue

import (
	"cmp"
	"errors"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Receiver receives the messages of a consumer, and decides whether to accept them.
type Receiver interface {
	// Offer passes a message to the consumer. It returns false if the consumer does not have credit for the message. The
	// queue then stops offering messages until [Queue.Resume] or [Queue.Credit] is called. The queue holds its lock when
	// it calls Offer, so Offer must not block and must not call the queue.
	Offer(*Item) bool
	// QueueDeleted is called after the queue was deleted, without a lock.
	QueueDeleted()
}

// Consumer is a subscription to a queue.
type Consumer struct {
	Receiver  Receiver
	NoAck     bool  // the queue settles a message as soon as the consumer accepts it
	Exclusive bool  // no other consumer may subscribe
	Priority  int64 // consumers receive messages only while all consumers with a higher priority have no credit
	Prefetch  int   // maximum number of unacked messages; 0 means no limit

	waiting   bool // not available, because it has refused a message or is exhausted
	exhausted bool // has Prefetch unacked messages, as counted by the queue
	unacked   int  // number of unacked messages
	cancelled bool // was cancelled while it had unacked messages
	number    int  // position in the order of arrival, from 1
}

// consumers is a round-robin scheduler. A consumer that has received a message moves behind the other consumers with
// the same priority.
type consumers struct {
	single     bool        // only the first consumer in all can be available
	preemptive bool        // a new consumer with a higher priority replaces the single active consumer
	all        []*Consumer // by priority, then by arrival; with single, the active one first
	available  []*Consumer // consumers that accept messages, by priority, then turn
	arrived    int         // number of consumers so far

	leaving *Consumer // previous active consumer; after it has settled its messages, the first consumer in all becomes active
}

func (cs *consumers) len() int { return len(cs.all) }

// join inserts a consumer behind all consumers with the same or a higher priority.
func join(list []*Consumer, c *Consumer) []*Consumer {
	i := slices.IndexFunc(list, func(other *Consumer) bool { return other.Priority < c.Priority })
	if i < 0 {
		return append(list, c)
	}
	return slices.Insert(list, i, c)
}

func (cs *consumers) add(c *Consumer) {
	cs.arrived++
	c.number = cs.arrived
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
		cs.all = slices.Concat(cs.all[:1], cs.wait(cs.all[1:], c))
		return
	default:
		active := cs.all[0]
		if cs.leaving == nil && active.unacked > 0 {
			cs.leaving = active
		}
		cs.all = slices.Concat([]*Consumer{c}, cs.wait(cs.all[1:], active))
	}
	cs.activate()
}

// wait inserts a consumer into the list of consumers that wait to become the single active consumer. As in RabbitMQ, a
// consumer that was active before does not lose its position.
func (cs *consumers) wait(list []*Consumer, c *Consumer) []*Consumer {
	if !cs.preemptive {
		return join(list, c)
	}
	i, _ := slices.BinarySearchFunc(list, c, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.credit(), a.credit()), cmp.Compare(a.number, b.number))
	})
	return slices.Insert(slices.Clone(list), i, c)
}

// credit returns the credit of a consumer without unacked messages in a quorum queue.
func (c *Consumer) credit() int { return cmp.Or(c.Prefetch, 2000) }

// active returns the single active consumer, or nil.
func (cs *consumers) active() *Consumer {
	if cs.leaving != nil || len(cs.all) == 0 {
		return cs.leaving
	}
	return cs.all[0]
}

// activate makes the first consumer the single active consumer, unless the previous one is still leaving.
func (cs *consumers) activate() {
	cs.available = nil
	if cs.leaving == nil && len(cs.all) > 0 {
		cs.all[0].waiting = false
		cs.available = []*Consumer{cs.all[0]}
	}
}

// settled records that a consumer has settled all its messages. It reports whether another consumer becomes active.
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

// exhausted is like refused, for a consumer with Prefetch unacked messages, which need not be the first available
// consumer.
func (cs *consumers) exhausted(c *Consumer) {
	c.waiting, c.exhausted = true, true
	cs.available = slices.DeleteFunc(cs.available, func(other *Consumer) bool { return other == c })
}

// resumed makes a waiting consumer available again. It reports whether the consumer became available.
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

// served moves c, the first available consumer, behind the other available consumers with the same priority.
func (cs *consumers) served(c *Consumer) {
	if len(cs.available) > 1 && cs.available[1].Priority == c.Priority {
		cs.available = join(cs.available[1:], c)
	}
}

// Errors that [Queue.Consume] returns.
var (
	ErrDeleted = errors.New("queue deleted")
	ErrInUse   = errors.New("exclusive consumer cannot share the queue with another consumer")
)

// Consume adds a consumer. It calls added before it offers the first message. Like [Receiver.Offer], added must not
// block. If Consume cannot add the consumer, it returns ErrDeleted or ErrInUse.
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
		return false // both options limit the consumers, and cannot be combined
	}
	return len(q.consumers.all) == 0 || !c.Exclusive && !q.consumers.all[0].Exclusive
}

// Cancel removes a consumer, and reports whether it was the last one. The consumer's unacked messages remain unacked.
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
	q.dispatch() // another consumer may have become the single active consumer
	if q.consumers.len() > 0 {
		return false
	}
	q.touch()
	return true
}

// Resume makes a consumer available again after it refused a message, and delivers messages.
func (q *Queue) Resume(c *Consumer) {
	q.Credit(c)
	q.Dispatch()
}

// Credit is like Resume, but does not deliver messages. The caller can requeue messages before it calls Dispatch, so
// that the consumer receives the requeued messages first.
func (q *Queue) Credit(c *Consumer) {
	q.mu.Lock()
	defer q.unlock()
	q.consumers.resumed(c)
}

// Dispatch delivers messages after calls to Credit.
func (q *Queue) Dispatch() {
	q.mu.Lock()
	defer q.unlock()
	q.dispatch()
}

// dispatch delivers messages while the message at the head is loaded and a consumer accepts it.
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

// offer delivers a message to the next consumer that accepts it, and reports whether a consumer accepted the message.
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
				// A quorum queue counts the credit of a consumer itself. The consumer becomes unavailable as soon as it has
				// used its credit, and not only when it refuses the next message, so that it does not lose its turn.
				q.consumers.exhausted(c)
			}
		}
		return true
	}
	return false
}
