package queue

import "slices"

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
	NoAck     bool // a message counts as settled as soon as it is taken
	Exclusive bool // suffers no other consumer

	waiting bool // has refused a message
}

// consumers takes turns: whoever was given a message goes to the end of the line.
type consumers struct {
	all  []*Consumer
	line []*Consumer // those that have not refused a message
}

func (cs *consumers) len() int { return len(cs.all) }

func (cs *consumers) add(c *Consumer) {
	cs.all = append(cs.all, c)
	cs.line = append(cs.line, c)
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
	return true
}

// Consume adds a consumer. It returns false when an exclusive one is in the way: this one, or one that is there. Added is
// called before the first message is offered, and like [Receiver.Offer] must not block.
func (q *Queue) Consume(c *Consumer, added func()) bool {
	q.mu.Lock()
	defer q.unlock()
	if len(q.consumers.all) > 0 && (c.Exclusive || q.consumers.all[0].Exclusive) {
		return false
	}
	q.consumers.add(c)
	added()
	q.dispatch()
	return true
}

// Cancel removes a consumer. It reports whether that was the last one. What the consumer was given stays with it.
func (q *Queue) Cancel(c *Consumer) (last bool) {
	q.mu.Lock()
	defer q.unlock()
	return q.consumers.remove(c) && q.consumers.len() == 0
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
		q.consumers.line = append(q.consumers.line, c)
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
		q.ready.pop()
	}
}

// offer finds a consumer for a message.
func (q *Queue) offer(it *Item) bool {
	for len(q.consumers.line) > 0 {
		c := q.consumers.line[0]
		taken := c.Receiver.Offer(it)
		if !taken {
			c.waiting = true
			q.consumers.line = q.consumers.line[1:]
			continue
		}
		if len(q.consumers.line) > 1 {
			q.consumers.line = append(q.consumers.line[1:], c)
		}
		if !c.NoAck {
			q.unacked++
		}
		return true
	}
	return false
}
