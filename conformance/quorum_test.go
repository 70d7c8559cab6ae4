package conformance

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// The delivery count is the number of failed deliveries. Since RabbitMQ 4.3, a delivery counts as failed after
// basic.reject or after its channel has closed, but not after basic.nack. If the count exceeds the delivery limit, the
// broker dead-letters the message.
func TestDeliveryCount(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		dead := c.queue("dead", nil)
		q := c.queue("q", amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": 2,
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
		})
		deliveries := c.consume(q, nil)
		c.put(q, "x")
		d := c.next(deliveries)
		if count, has := d.Headers["x-delivery-count"]; has {
			t.Errorf("delivery count of the first delivery: got %v, want none", count)
		}
		if b.Version != "3.10" {
			c.must(d.Nack(false, true))
			d = c.next(deliveries)
			if count, has := d.Headers["x-delivery-count"]; has || !d.Redelivered {
				t.Errorf("after a nack: got count %v, redelivered %v, want no count, true", count, d.Redelivered)
			}
		}
		for want := int64(1); want <= 2; want++ {
			c.must(d.Reject(true))
			d = c.next(deliveries)
			if d.Headers["x-delivery-count"] != want {
				t.Errorf("count: got %v, want %d", d.Headers["x-delivery-count"], want)
			}
		}
		c.must(d.Reject(true))
		if entry := deaths(t, c.get(dead))[0]; entry["reason"] != "delivery_limit" || entry["queue"] != q {
			t.Errorf("x-death: got %v, want reason delivery_limit and queue %s", entry, q)
		}
	})
}

func TestChannelCloseCountsFailedDeliveries(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		c.put(q, "x")
		ch := c.open()
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		c.must(err)
		c.next(deliveries)
		c.must(ch.Close())
		if d := c.next(c.consume(q, nil)); d.Headers["x-delivery-count"] != int64(1) || !d.Redelivered {
			t.Errorf("delivery: got count %v, redelivered %v, want 1, true", d.Headers["x-delivery-count"], d.Redelivered)
		}
	})
}

func TestUnsupportedByQuorumQueues(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		for property, declare := range map[string]func(ch *amqp.Channel, args amqp.Table) error{
			"non-durable": func(ch *amqp.Channel, args amqp.Table) error {
				_, err := ch.QueueDeclare(q, false, false, false, false, args)
				return err
			},
			"auto-delete": func(ch *amqp.Channel, args amqp.Table) error {
				_, err := ch.QueueDeclare(q, true, true, false, false, args)
				return err
			},
			"exclusive-owner": func(ch *amqp.Channel, args amqp.Table) error {
				_, err := ch.QueueDeclare(q, true, false, true, false, args)
				return err
			},
		} {
			if property == "non-durable" && b.IsRabbitMQ && b.Version == "4.3" {
				continue // 4.3 rejects transient queues of any type that are not exclusive
			}
			c.refused(406, "invalid property '"+property+"' for queue '"+q+"' in vhost '/'", func(ch *amqp.Channel) error {
				return declare(ch, amqp.Table{"x-queue-type": "quorum"})
			})
		}
		declare := func(args amqp.Table) func(*amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, args)
				return err
			}
		}
		c.refused(406, "invalid arg 'x-delivery-limit' for queue '"+q+"' in vhost '/' of queue type rabbit_classic_queue",
			declare(amqp.Table{"x-delivery-limit": 3}))
		c.refused(406, "invalid arg 'x-queue-type' for queue '"+q+"' in vhost '/': \"unsupported queue type 'nope'\"",
			declare(amqp.Table{"x-queue-type": "nope"}))
		c.refused(406, "invalid arg 'x-overflow' for queue '"+q+"' in vhost '/': invalid_overflow",
			declare(amqp.Table{"x-overflow": "nope"}))
	})
}

// A quorum queue delivers requeued messages before all other messages, in the order in which they were requeued.
func TestQuorumRequeueOrder(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 appends requeued messages to the tail
		}
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		c.put(q, "1", "2", "3", "4")
		ds := []amqp.Delivery{c.get(q), c.get(q), c.get(q)}
		for _, i := range []int{1, 0, 2} {
			c.must(ds[i].Nack(false, true))
		}
		if got := c.bodies(q, 4); got != "2 1 3 4" {
			t.Errorf("order: got %s, want 2 1 3 4", got)
		}
	})
}

// Dead letters have the same headers with the at-least-once strategy as with the default strategy.
func TestAtLeastOnceDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		dead := c.queue("dead", nil)
		q := c.queue("q", amqp.Table{
			"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
		})
		c.putExpiring(q, "x", "50")
		d := c.get(dead)
		entry := deaths(t, d)[0]
		if entry["reason"] != "expired" || entry["queue"] != q || entry["original-expiration"] != "50" || d.Expiration != "" {
			t.Errorf("dead letter: got x-death %v, expiration %q, want reason expired, queue %s, original-expiration 50, no expiration",
				entry, d.Expiration, q)
		}
	})
}

// Since RabbitMQ 4.0, the default delivery limit of a quorum queue is 20. If a message exceeds the limit, and the queue
// has no dead-letter exchange, the broker drops the message. A delivery limit of -1 means no limit.
func TestDefaultDeliveryLimit(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 has no default limit
		}
		limited := c.queue("limited", amqp.Table{"x-queue-type": "quorum"})
		unlimited := c.queue("unlimited", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": -1})
		for _, q := range []string{limited, unlimited} {
			deliveries := c.consume(q, nil)
			c.put(q, "x")
			for range 21 {
				c.must(c.next(deliveries).Reject(true))
			}
			if q == unlimited {
				c.must(c.next(deliveries).Ack(false))
				continue
			}
			c.expectIdle(deliveries)
		}
	})
}

// The dead letters of a classic queue do not contain the headers with the counts of an earlier quorum queue.
func TestClassicQueueRemovesDeliveryCounts(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		dead := c.queue("dead", nil)
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
		c.put(q, "x")
		c.must(c.get(q).Reject(true))
		c.must(c.get(q).Reject(false))
		d := c.get(dead)
		for _, header := range []string{"x-delivery-count", "x-acquired-count"} {
			if count, has := d.Headers[header]; has {
				t.Errorf("header %s of the dead letter: got %v, want none", header, count)
			}
		}
	})
}

// Since RabbitMQ 4.0, a dead letter keeps the number of deliveries that failed because of basic.reject. If this number
// is positive, the next queue marks the message as redelivered and, if it is a quorum queue, continues the count.
func TestDeadLetterPreservesFailedDeliveries(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return
		}
		for _, test := range []struct {
			how    string
			settle func(get func() amqp.Delivery)
			failed int64
		}{
			{"reject", func(get func() amqp.Delivery) { c.must(get().Reject(false)) }, 1},
			{"nack", func(get func() amqp.Delivery) { c.must(get().Nack(false, false)) }, 0},
			{"nack, nack", func(get func() amqp.Delivery) { c.must(get().Nack(false, true)); c.must(get().Nack(false, false)) }, 0},
			{"reject, nack", func(get func() amqp.Delivery) { c.must(get().Reject(true)); c.must(get().Nack(false, false)) }, 1},
			{"nack, reject", func(get func() amqp.Delivery) { c.must(get().Nack(false, true)); c.must(get().Reject(false)) }, 1},
			{"reject, reject", func(get func() amqp.Delivery) { c.must(get().Reject(true)); c.must(get().Reject(false)) }, 2},
		} {
			for _, from := range []string{"classic", "quorum"} {
				for _, to := range []string{"classic", "quorum"} {
					dead := c.queue("dead", amqp.Table{"x-queue-type": to})
					q := c.queue("q", amqp.Table{"x-queue-type": from, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
					c.put(q, "x")
					test.settle(func() amqp.Delivery { return c.get(q) })
					d := c.get(dead)
					var count any
					if to == "quorum" && test.failed > 0 {
						count = test.failed
					}
					if d.Redelivered != (test.failed > 0) || d.Headers["x-delivery-count"] != count || d.Headers["x-acquired-count"] != count {
						t.Errorf("%s from %s to %s: got redelivered %v, delivery count %v, acquired count %v after %d failed deliveries",
							test.how, from, to, d.Redelivered, d.Headers["x-delivery-count"], d.Headers["x-acquired-count"], test.failed)
					}
				}
			}
		}
	})
}

// A quorum queue counts a channel with an unacked message from basic.get as a consumer.
func TestGetCountsAsConsumer(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		c.put(q, "x")
		d := c.get(q)
		consumers := func() int {
			stats, err := c.QueueDeclarePassive(q, true, false, false, false, nil)
			c.must(err)
			return stats.Consumers
		}
		testkit.Eventually(t, timeout, func() bool { return consumers() == 1 })
		c.must(d.Ack(false))
		testkit.Eventually(t, timeout, func() bool { return consumers() == 0 })
	})
}

// With the at-least-once strategy, an unroutable dead letter is not ready, but still counts towards the maximum length
// of the queue that it comes from.
func TestUnroutableDeadLettersCountTowardsLength(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{
			"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-max-length": 1,
			"x-dead-letter-strategy": "at-least-once", "x-dead-letter-exchange": c.exchange("dlx", "direct"),
		})
		c.putExpiring(q, "held", "20")
		c.awaitReady(q, 0)
		// A quorum queue accepts one message above its limit.
		if got := c.confirms(q, "1", "2"); got != "+-" {
			t.Errorf("confirms: got %s, want +-", got)
		}
	})
}
