package conformance

import (
	"fmt"
	"regexp"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// expectIdle checks that a consumer does not get a delivery before a later message in another queue is delivered.
func (c *client) expectIdle(deliveries <-chan amqp.Delivery) {
	c.t.Helper()
	marker := c.queue("marker", nil)
	seen := c.consume(marker, nil)
	c.put(marker, "m")
	c.must(c.next(seen).Ack(false))
	select {
	case d := <-deliveries:
		c.t.Errorf("deliveries: got %q, want none", d.Body)
	default:
	}
}

func TestPrefetchIsPerConsumer(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3", "4")
		ch := c.open()
		c.must(ch.Qos(1, 0, false))
		first, err := ch.Consume(q, "", false, false, false, false, nil)
		c.must(err)
		c.must(ch.Qos(2, 0, false)) // applies to consumers that are started later
		second, err := ch.Consume(q, "", false, false, false, false, nil)
		c.must(err)
		d := c.next(first)
		c.next(second)
		c.next(second)
		c.expectIdle(first)
		c.expectIdle(second)
		c.must(d.Ack(false))
		if d := c.next(first); string(d.Body) != "4" {
			t.Errorf("delivery: got %q, want 4", d.Body)
		}
	})
}

// RabbitMQ 4.3 no longer supports a prefetch that all consumers of a channel share. It applies such a prefetch to each
// consumer.
func TestChannelPrefetchAppliesToEachConsumer(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.queue("q", nil)
		ch := c.open()
		c.must(ch.Qos(2, 0, true))
		deliveries := make(chan amqp.Delivery, 4)
		for range 2 {
			ds, err := ch.Consume(q, "", false, false, false, false, nil)
			c.must(err)
			go func() {
				for d := range ds {
					deliveries <- d
				}
			}()
		}
		window := 4
		if b.Version == "3.10" {
			window = 2
		}
		c.put(q, "1", "2", "3", "4", "5")
		for range window {
			c.next(deliveries)
		}
		c.expectIdle(deliveries)
	})
}

func TestAutomaticAcksIgnorePrefetch(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		ch := c.open()
		c.must(ch.Qos(1, 0, false))
		deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
		c.must(err)
		c.put(q, "1", "2", "3")
		for range 3 {
			c.next(deliveries)
		}
	})
}

// Canceling a consumer does not requeue its deliveries. Closing the channel requeues them at their original positions
// and marks them as redelivered.
func TestCancelKeepsDeliveriesAndCloseRequeues(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3")
		ch := c.open()
		c.must(ch.Qos(3, 0, false))
		deliveries, err := ch.Consume(q, "tag", false, false, false, false, nil)
		c.must(err)
		ds := []amqp.Delivery{c.next(deliveries), c.next(deliveries), c.next(deliveries)}
		c.must(ch.Cancel("tag", false))
		if n := c.ready(q); n != 0 {
			t.Errorf("messages requeued by basic.cancel: got %d, want 0", n)
		}
		c.must(ds[1].Ack(false))
		c.must(ch.Cancel("unknown", false))
		c.must(ch.Close())
		c.awaitReady(q, 2)
		for _, want := range []string{"1", "3"} {
			if d := c.get(q); string(d.Body) != want || !d.Redelivered {
				t.Errorf("got %q, redelivered %v; want %q, true", d.Body, d.Redelivered, want)
			}
		}
	})
}

func TestRecoverRedelivers(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3")
		ch := c.open()
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		c.must(err)
		for _, want := range []string{"1", "2", "3"} {
			if d := c.next(deliveries); string(d.Body) != want || d.Redelivered {
				t.Errorf("delivery: got %q, redelivered %v; want %q, false", d.Body, d.Redelivered, want)
			}
		}
		//lint:ignore SA1019 RabbitMQ still supports this deprecated method
		c.must(ch.Recover(true))
		for i, want := range []string{"1", "2", "3"} {
			if d := c.next(deliveries); string(d.Body) != want || !d.Redelivered || d.DeliveryTag != uint64(4+i) {
				t.Errorf("redelivery: got %q, redelivered %v, tag %d, want %q, true, %d",
					d.Body, d.Redelivered, d.DeliveryTag, want, 4+i)
			}
		}
	})
}

// The broker requeues messages at their original positions.
func TestRequeuePosition(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3", "4")
		c.get(q)
		second, third := c.get(q), c.get(q)
		c.must(second.Nack(false, true))
		c.must(third.Nack(true, true)) // requeues 1 and 3
		if got := c.bodies(q, 4); got != "1 2 3 4" {
			t.Errorf("order: got %s, want 1 2 3 4", got)
		}
	})
}

func TestConsumersTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		first, second := c.consume(q, nil), c.consume(q, nil)
		for i := range 6 {
			c.put(q, fmt.Sprint(i))
		}
		for i := range 3 {
			if a, b := c.next(first), c.next(second); string(a.Body) != fmt.Sprint(2*i) || string(b.Body) != fmt.Sprint(2*i+1) {
				t.Errorf("round %d: got deliveries %q and %q, want %d and %d", i, a.Body, b.Body, 2*i, 2*i+1)
			}
		}
	})
}

func TestQueueDeletionCancelsConsumers(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		ch := c.open()
		cancelled := ch.NotifyCancel(make(chan string, 1))
		_, err := ch.Consume(q, "tag", false, false, false, false, nil)
		c.must(err)
		_, err = c.QueueDelete(q, false, false, false)
		c.must(err)
		if tag := <-cancelled; tag != "tag" {
			t.Errorf("cancelled consumer: got %q, want tag", tag)
		}
		c.must(ch.Qos(1, 0, false)) // fails if the channel is closed
	})
}

func TestAutoDelete(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, x := testkit.Name(t, "q"), testkit.Name(t, "x")
		_, err := c.QueueDeclare(q, true, true, false, false, nil)
		c.must(err)
		c.must(c.ExchangeDeclare(x, "fanout", true, true, false, false, nil))
		c.bind(q, "", x)
		c.must(c.QueueUnbind(q, "other", x, nil)) // a missing binding, so the queue and the exchange remain
		c.ready(q)                                // the queue remains, because it has never had a consumer
		_, err = c.Consume(q, "tag", false, false, false, false, nil)
		c.must(err)
		c.must(c.Cancel("tag", false))
		for what, passive := range map[string]func(*amqp.Channel) error{
			"queue": func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(q, true, true, false, false, nil)
				return err
			},
			"exchange": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclarePassive(x, "fanout", true, true, false, false, nil)
			},
		} {
			testkit.Eventually(t, timeout, func() error {
				ch := c.open()
				if err := passive(ch); err != nil && err.(*amqp.Error).Code == 404 {
					return nil
				}
				_ = ch.Close()
				return fmt.Errorf("%s still exists", what)
			})
		}
	})
}

func TestMessageAndConsumerCounts(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2", "3")
		if d := c.get(q); d.MessageCount != 2 { // the number of remaining ready messages
			t.Errorf("get-ok: got message count %d, want 2", d.MessageCount)
		}
		stats, err := c.QueueDeclarePassive(q, true, false, false, false, nil)
		c.must(err)
		if stats.Messages != 2 || stats.Consumers != 0 {
			t.Errorf("declare-ok: got %d messages and %d consumers, want 2 and 0", stats.Messages, stats.Consumers)
		}
		if n, err := c.QueuePurge(q, false); n != 2 || err != nil {
			t.Errorf("purge-ok: got %d, %v; want 2", n, err)
		}
		c.put(q, "4")
		if n, err := c.QueueDelete(q, false, false, false); n != 1 || err != nil { // does not count the unacked message
			t.Errorf("delete-ok: got %d, %v; want 1", n, err)
		}
	})
}

// After the acknowledgement timeout, the broker cancels the consumer and requeues its messages. RabbitMQ still counts the
// consumer, refuses its tag, and delivers messages to it again after a late ack.
func TestConsumerTimeoutCancelsConsumer(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // the argument is new in 4.3
		}
		q := c.queue("q", amqp.Table{"x-queue-type": "quorum", "x-consumer-timeout": 1000})
		c.put(q, "x")
		ch := c.open()
		cancelled := ch.NotifyCancel(make(chan string, 1))
		deliveries, err := ch.Consume(q, "slow", false, false, false, false, nil)
		c.must(err)
		d := c.next(deliveries)
		if tag := <-cancelled; tag != "slow" {
			t.Errorf("broker cancelled consumer %q, want slow", tag)
		}
		c.awaitReady(q, 1)
		found, err := c.QueueDeclarePassive(q, true, false, false, false, nil)
		c.must(err)
		if counted := found.Consumers == 1; counted != b.IsRabbitMQ {
			t.Errorf("consumers: got %d, want 1 only for RabbitMQ", found.Consumers)
		}
		c.must(d.Ack(false)) // too late, but not an error
		_, err = ch.Consume(q, "slow", false, false, false, false, nil)
		if again := err == nil; again == b.IsRabbitMQ {
			t.Errorf("subscription with the same tag: got %v, want an error only from RabbitMQ", err)
		}
	})
}

func TestGeneratedNames(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q, err := c.QueueDeclare("", false, false, true, false, nil)
		c.must(err)
		if !regexp.MustCompile(`^amq\.gen-[\w-]{22}$`).MatchString(q.Name) {
			t.Errorf("generated queue name: got %q, want amq.gen- and 22 characters", q.Name)
		}
		r := dialRaw(t, b).open(2047, 0)
		r.send(1, &amqpwire.QueueDeclare{Exclusive: true})
		named := expect(r, &amqpwire.QueueDeclareOk{}).Queue
		r.send(1, &amqpwire.BasicConsume{Queue: named})
		if tag := expect(r, &amqpwire.BasicConsumeOk{}).ConsumerTag; !regexp.MustCompile(`^amq\.ctag-[\w-]{22}$`).MatchString(tag) {
			t.Errorf("generated consumer tag: got %q, want amq.ctag- and 22 characters", tag)
		}
		// An empty queue name means the queue that was declared last on the channel. An empty routing key then means
		// the name of this queue.
		c.must(c.QueueBind("", "", "amq.direct", false, nil))
		c.publish("amq.direct", q.Name, amqp.Publishing{Body: []byte("x")})
		c.bodies(q.Name, 1)
	})
}

func TestTopicExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x := c.exchange("x", "topic")
		for _, test := range []struct {
			pattern string
			yes, no []string
		}{
			{"a.*", []string{"a.b", "a."}, []string{"a", "a.b.c"}},
			{"*.*", []string{"a.b", "."}, []string{"a"}},
			{"#.z", []string{"z", "a.z", "a.b.z"}, []string{"z.a"}},
			{"", []string{""}, []string{"a"}},
			{"*.#", []string{"a", "."}, []string{""}},
		} {
			q := c.queue("q", nil)
			c.bind(q, test.pattern, x)
			for _, key := range append(test.yes, test.no...) {
				c.publish(x, key, amqp.Publishing{})
			}
			if n := c.ready(q); n != len(test.yes) {
				t.Errorf("pattern %q: got %d messages, want %d", test.pattern, n, len(test.yes))
			}
			c.must(c.QueueUnbind(q, test.pattern, x, nil))
		}
	})
}

// Even with no-local, a consumer receives messages that were published on its connection.
func TestNoLocalIsIgnored(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, _ *client) {
		r := dialRaw(t, b).open(2047, 0)
		q := testkit.Name(t, "q")
		r.send(1, &amqpwire.QueueDeclare{Queue: q, Exclusive: true})
		expect(r, &amqpwire.QueueDeclareOk{})
		r.send(1, &amqpwire.BasicConsume{Queue: q, NoLocal: true, NoAck: true})
		expect(r, &amqpwire.BasicConsumeOk{})
		r.send(1, &amqpwire.BasicPublish{RoutingKey: q})
		r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, 0, []byte{0, 0}))
		if d := expect(r, &amqpwire.BasicDeliver{}); d.RoutingKey != q {
			t.Errorf("delivery: got %+v, want routing key %q", d, q)
		}
	})
}
