package conformance

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func (c *client) putPriority(queue, body string, priority uint8) {
	c.t.Helper()
	if !c.publish("", queue, amqp.Publishing{Body: []byte(body), Priority: priority}) {
		c.t.Fatalf("broker nacked %q", body)
	}
}

// The broker delivers messages with the highest priority first, and messages with the same priority in the order of
// their arrival. A priority above the maximum counts as the maximum. A missing priority counts as 0.
func TestClassicPriorities(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-max-priority": 5})
		c.put(q, "none")
		c.putPriority(q, "3", 3)
		c.putPriority(q, "9", 9)
		c.putPriority(q, "5", 5)
		c.putPriority(q, "3 again", 3)
		d := c.get(q)
		if string(d.Body) != "9" || d.Priority != 9 {
			t.Errorf("first message: got %q with priority %d, want \"9\" with priority 9", d.Body, d.Priority)
		}
		c.must(d.Nack(false, true))
		if got := c.bodies(q, 5); got != "9 5 3 3 again none" {
			t.Errorf("order: got %s, want 9 5 3 3 again none", got)
		}
	})
}

// A classic queue without priorities ignores the priorities of messages.
func TestNoPriorities(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.putPriority(q, "1", 1)
		c.putPriority(q, "9", 9)
		if got := c.bodies(q, 2); got != "1 9" {
			t.Errorf("order: got %s, want 1 9", got)
		}
	})
}

// Since 4.3, a quorum queue has 32 priorities. A message without a priority has priority 4.
func TestQuorumPriorities(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum"})
		c.putPriority(q, "3", 3)
		c.put(q, "none")
		c.putPriority(q, "5", 5)
		c.putPriority(q, "200", 200)
		c.putPriority(q, "31", 31)
		want := "200 31 5 none 3"
		if b.Version == "3.10" {
			want = "3 none 5 200 31"
		}
		if got := c.bodies(q, 5); got != want {
			t.Errorf("order: got %s, want %s", got, want)
		}
	})
}

// A full queue with priorities drops the message at its head, which has the highest priority.
func TestPriorityQueueDropsHead(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, dead := c.expiring(amqp.Table{"x-max-priority": 5, "x-max-length": 1})
		c.putPriority(q, "high", 5)
		c.putPriority(q, "low", 1)
		if got := c.bodies(dead, 1); got != "high" {
			t.Errorf("dead letter: got %s, want high", got)
		}
	})
}

// In a classic queue, a message expires only at the head of the queue, and therefore after all messages with a higher
// priority. A quorum queue of 4.3 has a head for each priority.
func TestExpiryBehindHigherPriority(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		other, otherDead := c.expiring(nil)
		for _, test := range []struct {
			args    amqp.Table
			expires bool
		}{
			{amqp.Table{"x-max-priority": 5}, false},
			{amqp.Table{"x-queue-type": "quorum"}, b.Version != "3.10"},
		} {
			q, dead := c.expiring(test.args)
			c.putPriority(q, "high", 5)
			c.publish("", q, amqp.Publishing{Body: []byte("low"), Priority: 1, Expiration: "1"})
			if test.expires {
				c.bodies(dead, 1)
				continue
			}
			c.putExpiring(other, "clock", "100")
			c.bodies(otherDead, 1)
			if n := c.ready(q); n != 2 {
				t.Errorf("%v: got %d messages, want 2", test.args, n)
			}
		}
	})
}

func TestMaxPriorityArgument(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		declare := func(args amqp.Table) func(*amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, args)
				return err
			}
		}
		c.refused(406, "invalid arg 'x-max-priority' for queue '"+q+"' in vhost '/': {max_value_exceeded,256}",
			declare(amqp.Table{"x-max-priority": 256}))
		c.refused(406, "invalid arg 'x-max-priority' for queue '"+q+"' in vhost '/' of queue type rabbit_quorum_queue",
			declare(amqp.Table{"x-max-priority": 5, "x-queue-type": "quorum"}))
	})
}

// The consumer with the highest priority gets all messages until its prefetch is reached.
func TestConsumerPriorities(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.must(c.Qos(2, 0, false))
		low := c.consume(q, nil)
		high := c.consume(q, amqp.Table{"x-priority": 10})
		c.put(q, "1", "2", "3")
		first := c.next(high)
		c.next(high)
		if d := c.next(low); string(d.Body) != "3" {
			t.Errorf("consumer with the lower priority: got %q, want \"3\"", d.Body)
		}
		c.must(first.Ack(false))
		c.put(q, "4")
		if d := c.next(high); string(d.Body) != "4" {
			t.Errorf("consumer with the higher priority: got %q, want \"4\"", d.Body)
		}
		c.refused(406, "invalid arg 'x-priority' for queue '"+q+"' in vhost '/': \"expected integer, got longstr\"",
			func(ch *amqp.Channel) error {
				_, err := ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": "10"})
				return err
			})
	})
}

// Only one consumer receives messages. After this consumer is canceled, the next consumer becomes active.
func TestSingleActiveConsumer(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, b testkit.Target, c *client) {
				q := c.queue("q", amqp.Table{"x-single-active-consumer": true, "x-queue-type": kind})
				first, err := c.Consume(q, "first", false, false, false, false, nil)
				c.must(err)
				second, err := c.Consume(q, "second", false, false, false, false, nil)
				c.must(err)
				c.put(q, "1", "2")
				c.next(first)
				c.next(first)
				c.expectIdle(second)
				c.must(c.Cancel("first", false))
				c.put(q, "3")
				if d := c.next(second); string(d.Body) != "3" {
					t.Errorf("second consumer: got %q, want 3", d.Body)
				}
				if kind == "quorum" {
					name := `<<"quorum">>`
					if b.Version == "3.10" {
						name = "quorum"
					}
					c.refused(405, "cannot obtain access to locked queue '"+q+"' in vhost '/'. basic.get operations are not "+
						"supported by "+name+" queues with single active consumer",
						func(ch *amqp.Channel) error { _, _, err := ch.Get(q, false); return err })
					return
				}
				c.refused(403, "queue '"+q+"' in vhost '/' in exclusive use", func(ch *amqp.Channel) error {
					_, err := ch.Consume(q, "", false, true, false, false, nil)
					return err
				})
			})
		})
	}
}
