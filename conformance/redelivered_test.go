package conformance

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// Each way in which a delivered message returns to its queue sets the flag redelivered, and no other message gets the flag.
func TestEachReturnSetsRedelivered(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		for kind, args := range map[string]amqp.Table{"classic": nil, "quorum": {"x-queue-type": "quorum"}} {
			for way, give := range map[string]func(ch *amqp.Channel, d amqp.Delivery) error{
				"nack":          func(_ *amqp.Channel, d amqp.Delivery) error { return d.Nack(false, true) },
				"nack multiple": func(_ *amqp.Channel, d amqp.Delivery) error { return d.Nack(true, true) },
				"reject":        func(_ *amqp.Channel, d amqp.Delivery) error { return d.Reject(true) },
				//lint:ignore SA1019 RabbitMQ still supports this deprecated method
				"recover":       func(ch *amqp.Channel, _ amqp.Delivery) error { return ch.Recover(true) },
				"close channel": func(ch *amqp.Channel, _ amqp.Delivery) error { return ch.Close() },
			} {
				for by, take := range map[string]func(ch *amqp.Channel, queue string) amqp.Delivery{
					"get": func(ch *amqp.Channel, queue string) amqp.Delivery {
						d, found, err := ch.Get(queue, false)
						if c.must(err); !found {
							t.Fatalf("%s queue: get: got no message", kind)
						}
						return d
					},
					"consume": func(ch *amqp.Channel, queue string) amqp.Delivery {
						c.must(ch.Qos(1, 0, false))
						deliveries, err := ch.Consume(queue, "tag", false, false, false, false, nil)
						c.must(err)
						d := c.next(deliveries)
						c.must(ch.Cancel("tag", false))
						return d
					},
				} {
					queue := c.queue(kind+way+by, args)
					c.put(queue, "1", "2")
					ch := c.open()
					d := take(ch, queue)
					if string(d.Body) != "1" || d.Redelivered {
						t.Errorf("%s queue, %s, %s: got %q, redelivered %v, want 1, false", kind, by, way, d.Body, d.Redelivered)
					}
					c.must(give(ch, d))
					c.awaitReady(queue, 2)
					for range 2 {
						d := c.get(queue)
						if want := string(d.Body) == "1"; d.Redelivered != want {
							t.Errorf("%s queue, %s, %s: message %s: redelivered %v, want %v", kind, by, way, d.Body, d.Redelivered, want)
						}
					}
				}
			}
		}
	})
}
