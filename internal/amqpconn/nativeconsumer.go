package amqpconn

import (
	"crypto/rand"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// nativeConsumer passes deliveries to the goroutine that consumes. The goroutine that reads must not wait, so deliveries that
// do not fit into the channel go to a list, which a goroutine empties.
type nativeConsumer struct {
	deliveries chan Incoming

	mu      sync.Mutex
	waiting []Incoming // if not empty, a goroutine runs pass
	closed  bool
	gone    <-chan struct{} // of the AMQP channel
}

// maxPassed limits the capacity of the channel of a consumer, which occupies 300 bytes per delivery.
const maxPassed = 128

func (c *nativeConsumer) put(in Incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if len(c.waiting) == 0 {
		select {
		case c.deliveries <- in:
			return
		default:
			go c.pass()
		}
	}
	c.waiting = append(c.waiting, in)
}

// pass passes on the waiting deliveries.
func (c *nativeConsumer) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		in := c.waiting[0]
		c.mu.Unlock()
		select {
		case c.deliveries <- in:
		case <-c.gone: // the deliveries can no longer be settled
		}
		c.mu.Lock()
		c.waiting[0] = Incoming{} // the array keeps the body otherwise
		c.waiting = c.waiting[1:]
	}
	if c.closed {
		close(c.deliveries)
	}
}

// close closes the channel of deliveries after the received deliveries.
func (c *nativeConsumer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	if len(c.waiting) == 0 {
		close(c.deliveries)
	}
}

func (ch *nativeChannel) consume(c consumer) (Deliveries, error) {
	tag := c.tag
	if tag == "" {
		tag = "reprise-" + rand.Text()
	}
	size := maxPassed
	if c.prefetch > 0 {
		size = min(size, c.prefetch)
	}
	passed := &nativeConsumer{deliveries: make(chan Incoming, size), gone: ch.Ended()}
	ch.mu.Lock()
	ch.consumers[tag] = passed // before the first delivery
	ch.mu.Unlock()
	if err := ch.call(&amqpwire.BasicConsume{Queue: c.queue, ConsumerTag: tag, NoAck: c.noAck, Exclusive: c.exclusive, Arguments: wireTable(c.args)}); err != nil {
		ch.drop(tag)
		return nil, err
	}
	return passed.deliveries, nil
}

// drop closes the channel of a consumer.
func (ch *nativeChannel) drop(tag string) {
	ch.mu.Lock()
	c := ch.consumers[tag]
	delete(ch.consumers, tag)
	ch.mu.Unlock()
	if c != nil {
		c.close()
	}
}

func (ch *nativeChannel) cancel(tag string) error {
	_, err := ch.Take(&amqpwire.BasicCancel{ConsumerTag: tag}, func(amqpwire.Method, *amqpclient.Content) { ch.drop(tag) })
	return clientError(err)
}

// Deliver implements amqpclient.Handler.
func (ch *nativeChannel) Deliver(m *amqpwire.BasicDeliver, c *amqpclient.Content) error {
	ch.mu.Lock()
	consumer := ch.consumers[m.ConsumerTag]
	ch.mu.Unlock()
	if consumer == nil {
		return nil // canceled; the broker requeues the message when the channel closes
	}
	d, err := received(c, ch.maxFrame)
	d.Tag, d.Redelivered, d.Exchange, d.RoutingKey = m.DeliveryTag, m.Redelivered, m.Exchange, m.RoutingKey
	if err == nil {
		consumer.put(Incoming{d, m.ConsumerTag})
	}
	return err
}
