package queue

import (
	"slices"

	"github.com/reprisemq/reprise/internal/stats"
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

	waiting bool // has refused a message
}

// consumers takes turns: whoever was given a message goes to the end of the line of those with the same priority.
type consumers struct {
	single bool        // only the first of all is in the line
	all    []*Consumer // by priority, then as they came
	line   []*Consumer // those that have not refused a message; likewise
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
		// The active one stays so, whoever comes.
		if len(cs.all) == 0 {
			cs.line = append(cs.line, c)
			cs.all = append(cs.all, c)
		} else {
			cs.all = slices.Concat(cs.all[:1], join(cs.all[1:], c))
		}
		return
	}
	cs.all = join(cs.all, c)
	cs.line = join(cs.line, c)
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
	if cs.single && i == 0 && len(cs.all) > 0 {
		cs.line = append(cs.line, cs.all[0])
	}
	return true
}

// refused takes a consumer out of the line until it is resumed.
func (cs *consumers) refused(c *Consumer) {
	c.waiting = true
	cs.line = cs.line[1:]
}

// served sends a consumer to the end of its line.
func (cs *consumers) served(c *Consumer) {
	if len(cs.line) > 1 && cs.line[1].Priority == c.Priority {
		cs.line = join(cs.line[1:], c)
	}
}

// Consume adds a consumer. It returns false when an exclusive one is in the way: this one, or one that is there. Added is
// called before the first message is offered, and like [Receiver.Offer] must not block.
func (q *Queue) Consume(c *Consumer, added func()) bool {
	q.mu.Lock()
	defer q.unlock()
	if !q.admits(c) {
		return false
	}
	q.consumers.add(c)
	added()
	q.dispatch()
	return true
}

func (q *Queue) admits(c *Consumer) bool {
	if q.config.SingleActive && !q.config.Quorum && c.Exclusive {
		return false // a classic queue takes either way to have one consumer at a time
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
	q.dispatch() // the next one may be the single active one now
	if q.consumers.len() > 0 {
		return false
	}
	q.touch()
	return true
}

// Resume tells that a consumer which refused a message has credit again.
func (q *Queue) Resume(c *Consumer) {
	q.mu.Lock()
	defer q.unlock()
	if !c.waiting {
		return
	}
	c.waiting = false
	if slices.Contains(q.consumers.all, c) {
		q.consumers.line = join(q.consumers.line, c)
		q.dispatch()
	}
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
		return true
	}
	return false
}
