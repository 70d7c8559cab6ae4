package queue

import (
	"errors"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Receiver is a consumer's own side, which decides when it takes messages.
type Receiver interface {
	// Offer hands over a message, or returns false when the consumer has no credit for it; it is then not asked again
	// before [Queue.Resume]. It is called with the queue locked: it must not block, nor call the queue.
	Offer(*Item) bool
	// QueueDeleted tells that there is nothing left to consume. It is called without locks.
	QueueDeleted()
}

// Consumer is a subscription to a queue.
type Consumer struct {
	Receiver  Receiver
	NoAck     bool  // a message counts as settled as soon as it is taken
	Exclusive bool  // suffers no other consumer
	Priority  int64 // those with the highest get everything while they have credit
	Prefetch  int   // how many messages it has credit for; 0: any number

	waiting   bool // has refused a message, or is exhausted
	exhausted bool // has as many messages unacked as it may, by the queue's own count
	unacked   int  // messages
	gone      bool // has left with messages unacked
}

// consumers takes turns: whoever was given a message goes to the end of the line of those with the same priority.
type consumers struct {
	single bool        // only the first of all is in the line
	yields bool        // and it makes way for one with a higher priority
	all    []*Consumer // by priority, then as they came
	line   []*Consumer // those that have not refused a message; likewise

	leaving *Consumer // the one before the first of all, which has to settle what it has before it is the first one's turn
}

func (cs *consumers) len() int { return len(cs.all) }

// join puts a consumer behind those of its priority.
func join(line []*Consumer, c *Consumer) []*Consumer {
	i := slices.IndexFunc(line, func(other *Consumer) bool { return other.Priority < c.Priority })
	if i < 0 {
		return append(line, c)
	}
	return slices.Insert(line, i, c)
}

func (cs *consumers) add(c *Consumer) {
	if cs.single {
		cs.addSingle(c)
		return
	}
	cs.all = join(cs.all, c)
	cs.line = join(cs.line, c)
}

func (cs *consumers) addSingle(c *Consumer) {
	switch {
	case len(cs.all) == 0:
		cs.all = []*Consumer{c}
	case !cs.yields || c.Priority <= cs.all[0].Priority:
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

// activate makes the first one the single active consumer, unless another is still leaving.
func (cs *consumers) activate() {
	cs.line = nil
	if cs.leaving == nil && len(cs.all) > 0 {
		cs.all[0].waiting = false
		cs.line = []*Consumer{cs.all[0]}
	}
}

// settled tells that a consumer has no unacked messages any more. It reports whether that makes another one active.
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
	if i := slices.Index(cs.line, c); i >= 0 {
		cs.line = slices.Delete(cs.line, i, i+1)
	}
	if cs.leaving == c {
		cs.leaving = nil
		cs.activate()
	} else if cs.single && i == 0 {
		cs.activate()
	}
	return true
}

// refused takes a consumer out of the line until it is resumed.
func (cs *consumers) refused(c *Consumer) {
	c.waiting = true
	cs.line = cs.line[1:]
}

// exhausted takes a consumer out of the line wherever it is.
func (cs *consumers) exhausted(c *Consumer) {
	c.waiting, c.exhausted = true, true
	cs.line = slices.DeleteFunc(cs.line, func(other *Consumer) bool { return other == c })
}

// resumed puts a consumer that was taken out of the line back into it.
func (cs *consumers) resumed(c *Consumer) bool {
	if !c.waiting {
		return false
	}
	c.waiting, c.exhausted = false, false
	if !slices.Contains(cs.all, c) || cs.single && (cs.leaving != nil || cs.all[0] != c) {
		return false
	}
	cs.line = join(cs.line, c)
	return true
}

// served sends a consumer to the end of its line.
func (cs *consumers) served(c *Consumer) {
	if len(cs.line) > 1 && cs.line[1].Priority == c.Priority {
		cs.line = join(cs.line[1:], c)
	}
}

// The reasons why a queue takes no consumer.
var (
	ErrDeleted = errors.New("the queue is deleted")
	ErrInUse   = errors.New("an exclusive consumer is in the way: this one, or one that is there")
)

// Consume adds a consumer. Added is called before the first message is offered, and like [Receiver.Offer] must not block.
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
		return true // a quorum queue knows no exclusive consumers
	}
	if q.config.SingleActive && c.Exclusive {
		return false // there is either way to have one consumer at a time
	}
	return len(q.consumers.all) == 0 || !c.Exclusive && !q.consumers.all[0].Exclusive
}

// Cancel removes a consumer. It reports whether that was the last one. What the consumer was given stays with it.
func (q *Queue) Cancel(c *Consumer) (last bool) {
	q.mu.Lock()
	defer q.unlock()
	if !q.consumers.remove(c) {
		return false
	}
	if c.unacked > 0 {
		c.gone = true
		q.absent++
	}
	q.dispatch() // the next one may be the single active one now
	if q.consumers.len() > 0 {
		return false
	}
	q.touch()
	return true
}

// Resume tells that a consumer which refused a message has credit again.
func (q *Queue) Resume(c *Consumer) {
	q.Credit(c)
	q.Dispatch()
}

// Credit is the first half of Resume: the consumer is back in the line, and gets nothing yet. What is settled in between
// comes before what it might have had.
func (q *Queue) Credit(c *Consumer) {
	q.mu.Lock()
	defer q.unlock()
	q.consumers.resumed(c)
}

// Dispatch is the second half of Resume.
func (q *Queue) Dispatch() {
	q.mu.Lock()
	defer q.unlock()
	q.dispatch()
}

// dispatch hands out messages until there are none, or nobody takes one.
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

// offer finds a consumer for a message.
func (q *Queue) offer(it *Item) bool {
	for len(q.consumers.line) > 0 {
		c := q.consumers.line[0]
		if !c.Receiver.Offer(it) {
			q.consumers.refused(c)
			continue
		}
		q.consumers.served(c)
		q.acquire(it, c.NoAck, stats.Deliver, stats.DeliverNoAck)
		if c.NoAck {
			q.unkeep(it)
		} else {
			it.holder = c
			c.unacked++
			if q.config.Quorum && c.unacked == c.Prefetch {
				// A quorum queue keeps count of the credit: who has none has no turn to lose.
				q.consumers.exhausted(c)
			}
		}
		return true
	}
	return false
}
