package conformance

import (
	"errors"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// cutOff returns a client and a function that cuts the connection of this client.
func cutOff(t *testing.T, b testkit.Target) (c *client, cut func()) {
	t.Helper()
	proxy := testkit.NewProxy(t, b.URL)
	b.URL = proxy.URL()
	return connect(t, b), proxy.Cut
}

// left waits until a queue has no consumer, removes all messages from the queue, and returns their bodies.
func (c *client) left(queue string) (bodies []string) {
	c.t.Helper()
	var n int
	testkit.Eventually(c.t, timeout, func() error {
		q, err := c.QueueDeclarePassive(queue, true, false, false, false, nil)
		c.must(err)
		if n = q.Messages; q.Consumers > 0 {
			return errors.New(queue + " has a consumer")
		}
		return nil
	})
	for range n {
		bodies = append(bodies, string(c.get(queue).Body))
	}
	return bodies
}

func numbers(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	return all
}

// In RabbitMQ, at most 33 settlements from a channel to a quorum queue can be unconfirmed by the queue. If the
// connection fails, the channel discards the settlements that it has not sent yet. The sent settlements cannot be lost
// after the channel has replied to a later request.
func TestAcksBeforeReplySurviveConnectionLoss(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		for range 5 {
			const count = 33
			q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
			c.put(q, numbers(count)...)
			other, cut := cutOff(t, b)
			deliveries := other.consume(q, nil)
			var all []amqp.Delivery
			for range count {
				all = append(all, other.next(deliveries))
			}
			for _, d := range all {
				c.must(d.Ack(false))
			}
			c.must(other.Qos(1, 0, false))
			cut()
			if left := c.left(q); len(left) > 0 {
				t.Fatalf("queue must not contain acknowledged messages: got %v", left)
			}
		}
	})
}

// Each delivery beyond the prefetch proves that the queue has processed one more ack, in the order of the acks.
func TestDeliveryBeyondPrefetchProvesAck(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		const count, prefetch, until = 1000, 100, 700
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		for _, body := range numbers(count) {
			c.must(c.Publish("", q, false, false, amqp.Publishing{Body: []byte(body)}))
		}
		c.put(q, strconv.Itoa(count))
		other, cut := cutOff(t, b)
		c.must(other.Qos(prefetch, 0, false))
		deliveries := other.consume(q, nil)
		for range until {
			c.must(other.next(deliveries).Ack(false))
		}
		cut()
		for _, body := range c.left(q) {
			if n, err := strconv.Atoi(body); err != nil || n < until-prefetch {
				t.Errorf("message %s was acknowledged, but is still in the queue", body)
			}
		}
	})
}
