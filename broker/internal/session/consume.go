package session

import (
	"context"
	"errors"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// window limits the number of unacked messages.
type window struct {
	limit int // 0: unlimited
	used  int
}

func (w *window) full() bool { return w.limit > 0 && w.used >= w.limit }

// consumer is a subscription of a channel to a queue. It implements [queue.Receiver].
type consumer struct {
	queue.Consumer
	ch        *channel
	queue     *vhost.Queue
	tag       string
	number    uint64 // position in the order of subscription on this channel, from 1
	arguments amqpwire.Table
	timeout   time.Duration // acknowledgement timeout; 0: none
	size      int64         // approximate memory
	expiry    bool          // see [queue.ExpiryArgument]

	// Guarded by the lock of the channel.
	window    window
	cancelled bool                  // no longer in the channel; its deliveries may still be unacked
	refused   bool                  // refused a message, or would refuse the next one, for lack of credit or memory
	deliver   amqpwire.BasicDeliver // last delivery, reused for the next one
}

// consumerSize is the approximate memory of a consumer in the session and in the queue, without its tag and arguments.
const consumerSize = 512

func (ch *channel) basicQos(m *amqpwire.BasicQos) error {
	if m.PrefetchSize != 0 {
		return exception.New(exception.NotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	// RabbitMQ 4.3 does not support a prefetch for the whole channel (global=true). It applies the prefetch to each consumer
	// (https://www.rabbitmq.com/docs/consumer-prefetch).
	ch.prefetch = m.PrefetchCount
	ch.send(&amqpwire.BasicQosOk{})
	return nil
}

func (ch *channel) basicConsume(m *amqpwire.BasicConsume) error {
	tag := m.ConsumerTag
	if tag == "" {
		tag = vhost.RandomName("amq.ctag-")
	}
	if ch.consumes(tag) {
		return exception.New(exception.NotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	q, err := ch.source(m)
	if err != nil {
		return err
	}
	priority, timeout, err := q.ConsumerArguments(m.Arguments)
	if err != nil && q != ch.replies { // RabbitMQ ignores the arguments for direct replies
		return err
	}
	if err := ch.s.await(q.Consumed); err != nil {
		return err
	}
	c := &consumer{ch: ch, queue: q, tag: tag, arguments: m.Arguments, timeout: timeout, window: window{limit: int(ch.prefetch)}}
	wanted, _ := m.Arguments.Get(queue.ExpiryArgument)
	c.expiry = wanted == true
	c.size = consumerSize + int64(len(tag)) + m.Arguments.Footprint()
	c.Consumer = queue.Consumer{Receiver: c, NoAck: m.NoAck, Exclusive: m.Exclusive, Priority: priority, Prefetch: int(ch.prefetch)}

	ch.mu.Lock()
	ch.consumerCount++
	c.number = ch.consumerCount
	ch.consumers[tag] = c
	ch.consumerMemory.Add(c.size)
	ch.mu.Unlock()
	err = q.Consume(&c.Consumer, func() { ch.reply(m.NoWait, &amqpwire.BasicConsumeOk{ConsumerTag: tag}) })
	switch {
	case errors.Is(err, queue.ErrDeleted): // after the lookup
		ch.forget(c)
		return exception.New(exception.NotFound, "no %v", q)
	case err != nil:
		ch.forget(c)
		return exception.New(exception.AccessRefused, "%v in exclusive use", q)
	}
	return nil
}

func (ch *channel) consumes(tag string) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	_, used := ch.consumers[tag]
	return used
}

// source returns the queue to consume from. For direct replies it creates a reply queue.
func (ch *channel) source(m *amqpwire.BasicConsume) (*vhost.Queue, error) {
	if m.Queue != vhost.ReplyTo {
		q, err := ch.queue(m.Queue, access.Read)
		if err == nil && q.Reply() {
			err = exception.New(exception.PreconditionFailed, "only creator channel may consume from %v", q)
		}
		return q, err
	}
	switch {
	case !m.NoAck:
		return nil, exception.New(exception.PreconditionFailed, "reply consumer cannot acknowledge")
	case ch.replies != nil:
		return nil, exception.New(exception.PreconditionFailed, "reply consumer already set")
	}
	ch.replies = ch.s.vhost.NewReplyQueue(ch.s)
	return ch.replies, nil
}

func (ch *channel) basicCancel(m *amqpwire.BasicCancel) {
	ch.mu.Lock()
	c := ch.consumers[m.ConsumerTag]
	ch.mu.Unlock()
	if c != nil {
		ch.forget(c)
		ch.cancelConsumer(c)
		if c.queue == ch.replies {
			ch.replies = nil
		}
	}
	ch.reply(m.NoWait, &amqpwire.BasicCancelOk{ConsumerTag: m.ConsumerTag})
}

func (ch *channel) forget(c *consumer) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.consumers[c.tag] != c {
		return
	}
	delete(ch.consumers, c.tag)
	c.cancelled, c.arguments = true, nil
	ch.consumerMemory.Add(consumerSize - c.size)
	if c.window.used == 0 {
		ch.consumerMemory.Add(-consumerSize)
	}
}

// settled returns the credit of a settled message. The caller must hold the lock of the channel.
func (c *consumer) settled() {
	c.window.used--
	if c.cancelled && c.window.used == 0 && !c.ch.released {
		c.ch.consumerMemory.Add(-consumerSize)
	}
}

// cancelConsumer cancels the subscription at the queue.
func (ch *channel) cancelConsumer(c *consumer) {
	if c.queue.Cancel(&c.Consumer) {
		ch.s.vhost.ConsumerGone(c.queue)
	}
}

// properties returns the encoded properties of a delivery.
func (c *consumer) properties(it *queue.Item) []byte {
	if c.expiry {
		return it.ExpiryProperties()
	}
	return it.DeliveryProperties()
}

// Offer implements [queue.Receiver].
func (c *consumer) Offer(it *queue.Item) bool {
	ch := c.ch
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.released {
		return false
	}
	if !c.NoAck && (c.window.full() || c.saturated()) {
		c.refused = true // under the lock that finish holds to return credit, so that no wake-up is lost
		return false
	}
	tag := ch.lastTag + 1
	c.deliver = amqpwire.BasicDeliver{
		ConsumerTag: c.tag, DeliveryTag: tag, Redelivered: it.Redelivered,
		Exchange: it.Message.Exchange, RoutingKey: it.Message.RoutingKey,
	}
	sent := ch.s.out.offer(func(b []byte) []byte {
		return ch.appendContent(b, &c.deliver, c.properties(it), len(it.Message.Body))
	}, ch.body(it.Message.Body), c)
	if !sent {
		return false
	}
	ch.lastTag = tag
	way := stats.DeliverNoAck
	if !c.NoAck {
		way = stats.Deliver
		c.window.used++
		c.refused = c.window.full() // a quorum queue enforces the limit itself, and offers no further messages
		d := delivery{tag: tag, item: it, queue: c.queue, consumer: c}
		if c.timeout > 0 {
			d.due = time.Now().Add(c.timeout)
			ch.s.awaitAck(d.due)
		}
		ch.unacked.add(d)
	}
	ch.counter.Out(c.queue.Quorum(), it.Redelivered, way)
	return true
}

// If unacked deliveries use more than throttlePercent of the memory limit of a connection, a consumer with
// throttleUnacked or more unacked messages does not get further messages. The remaining memory is for clients that
// acknowledge many messages together. Above singleMessagePercent, a consumer gets one message at a time. While the
// memory for all connections is scarce, throttleUnacked also limits consumers without a prefetch, even if other
// connections use the memory. A consumer with a prefetch already has a limit, and may wait for that number of messages
// before its first acknowledgement.
const (
	throttlePercent      = 50
	singleMessagePercent = 75
	throttleUnacked      = 1000
)

// saturated reports whether a consumer has reached its share of the available memory. The session throttles a client that
// falls behind. It does not disconnect the client, because then all its unacked messages would count as failed. The caller
// must hold the lock of the channel.
func (c *consumer) saturated() bool {
	if !c.exceedsShare() {
		return false
	}
	c.ch.s.saturated.Store(true)
	return c.exceedsShare() // check again: resumeSaturated may have run before the flag was set
}

func (c *consumer) exceedsShare() bool {
	taken, n := &c.ch.unacked.share, c.window.used
	switch {
	case n == 0:
		return false // without an unacked message, no ack would resume the consumer
	case n >= throttleUnacked:
		return taken.Exceeds(throttlePercent) || taken.Scarce() && c.window.limit == 0
	}
	return taken.Exceeds(singleMessagePercent)
}

// resumeSaturated resumes saturated consumers if memory is available again, possibly because other consumers have
// acknowledged messages. The reader calls it while it holds the locks of the session.
func (s *Session) resumeSaturated() {
	if !s.saturated.Load() || s.account.Exceeds(budget.Unacked, singleMessagePercent) {
		return
	}
	s.saturated.Store(false)
	for _, ch := range s.channels {
		for _, c := range ch.resumable() {
			c.resume()
		}
	}
}

// resumable returns the consumers that refused a message and can receive messages now.
func (ch *channel) resumable() (all []*consumer) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, c := range ch.consumers {
		if c.refused && !c.window.full() && !c.saturated() {
			c.refused = false
			all = append(all, c)
		}
	}
	return all
}

// QueueDeleted implements [queue.Receiver].
func (c *consumer) QueueDeleted() {
	c.ch.forget(c)
	if c.ch.s.notifiesCancel {
		c.ch.send(&amqpwire.BasicCancel{ConsumerTag: c.tag, NoWait: true})
	}
}

// resume implements [stalled].
func (c *consumer) resume() { c.queue.Resume(&c.Consumer) }

func (ch *channel) basicGet(m *amqpwire.BasicGet) error {
	q, err := ch.queue(m.Queue, access.Read)
	if err != nil {
		return err
	}
	if q.Reply() {
		return exception.New(exception.NotImplemented, "basic.get not supported by volatile %v", q)
	}
	if c := q.Config(); c.Quorum && c.SingleActive {
		return exception.New(exception.ResourceLocked, "cannot obtain access to locked %v. basic.get operations "+
			"are not supported by <<\"quorum\">> queues with single active consumer", q)
	}
	if err := ch.s.await(q.Consumed); err != nil {
		return err
	}
	found := false
	err = ch.s.await(func(context.Context) (err error) { // the queue may have to read the message from disk
		found, err = q.Get(m.NoAck, func(it *queue.Item, left int) { ch.sendGetOk(q, m.NoAck, it, left) })
		return err
	})
	if err != nil {
		return err
	}
	if !found {
		ch.counter.AddFrom(q.Quorum(), stats.GetEmpty, 1)
		ch.send(&amqpwire.BasicGetEmpty{})
	}
	return nil
}

// sendGetOk sends a message as the reply to basic.get.
func (ch *channel) sendGetOk(q *vhost.Queue, noAck bool, it *queue.Item, left int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.lastTag++
	way := stats.GetNoAck
	if !noAck {
		way = stats.Get
		ch.unacked.add(delivery{tag: ch.lastTag, item: it, queue: q})
	}
	ch.counter.Out(q.Quorum(), it.Redelivered, way)
	ch.s.out.writeContent(func(b []byte) []byte {
		return ch.appendContent(b, &amqpwire.BasicGetOk{
			DeliveryTag: ch.lastTag, Redelivered: it.Redelivered,
			Exchange: it.Message.Exchange, RoutingKey: it.Message.RoutingKey, MessageCount: uint32(left),
		}, it.DeliveryProperties(), len(it.Message.Body))
	}, ch.body(it.Message.Body))
}
