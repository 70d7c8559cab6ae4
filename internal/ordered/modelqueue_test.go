package ordered_test

import (
	"slices"

	"github.com/reprisemq/reprise/internal/ordered"
)

// queue is a quorum queue with a single active consumer: the first one.
type queue struct {
	m         *model
	ready     []content
	consumers []*channel
}

// channel is a channel of a process that consumes one queue and, if it is the held queue, publishes to it. The acks of the
// process reach the queue later, in their order, and its publications reach the queue in any order.
type channel struct {
	queue    *queue
	open     bool      // the broker has not closed it
	unacked  []content // sent to the process
	tags     []uint64  // of unacked
	last     uint64
	incoming []ordered.Delivery // not yet received by the process
	acks     []settlement       // not yet processed by the queue
	pubs     []content          // not yet processed by the queue
}

type settlement struct {
	tag     uint64
	requeue bool
}

func (q *queue) dispatch() {
	if len(q.consumers) == 0 {
		return
	}
	c := q.consumers[0]
	for _, x := range q.ready {
		x.deliveries++
		c.last++
		c.unacked, c.tags = append(c.unacked, x), append(c.tags, c.last)
		c.incoming = append(c.incoming, ordered.Delivery{Tag: c.last, Redelivered: x.redelivered, Suspect: x.deliveries > 2, Size: 1, Message: x})
	}
	q.ready = nil
}

func (q *queue) enqueue(x content) {
	q.ready = append(q.ready, x)
	q.dispatch()
}

// release returns the messages of a consumer, and removes the consumer.
func (q *queue) release(c *channel) {
	for i := range c.unacked {
		c.unacked[i].redelivered = true
	}
	q.ready = append(c.unacked, q.ready...)
	c.unacked, c.tags = nil, nil
	q.consumers = slices.DeleteFunc(q.consumers, func(x *channel) bool { return x == c })
}

func (c *channel) close() {
	if c.open {
		c.queue.m.note("a channel closes: %p held %v", c, c.queue == c.queue.m.held)
		c.open = false
		c.acks = nil
		c.queue.release(c)
		c.queue.dispatch()
	}
}

// demote makes another consumer active, as RabbitMQ does if the nodes of the channel and of the queue are disconnected. The
// process does not notice.
func (c *channel) demote() {
	c.queue.m.note("a channel is demoted: %p held %v", c, c.queue == c.queue.m.held)
	c.queue.release(c)
	c.queue.consumers = append(c.queue.consumers, c)
	c.queue.dispatch()
}

func (c *channel) ack() {
	s := c.acks[0]
	c.queue.m.note("ack %+v, held %v", s, c.queue == c.queue.m.held)
	c.acks = c.acks[1:]
	if i := slices.Index(c.tags, s.tag); i >= 0 {
		x := c.unacked[i]
		c.tags, c.unacked = slices.Delete(c.tags, i, i+1), slices.Delete(c.unacked, i, i+1)
		if s.requeue {
			x.redelivered = true
			c.queue.ready = append([]content{x}, c.queue.ready...)
			c.queue.dispatch()
		}
	}
}
