package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// The tests in this file verify the behavior on which the actions on waiting messages rely. They use quorum queues that
// are declared like the wait queues of topology.Buckets, and classic queues with the same dead-letter target.

// declareWaiting declares a wait queue and its work queue.
func (c *client) declareWaiting(kind string) (wait, work string) {
	c.t.Helper()
	work = c.queue("work", amqp.Table{"x-queue-type": kind})
	args := amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work}
	if kind == "quorum" {
		args["x-dead-letter-strategy"], args["x-overflow"] = "at-least-once", "reject-publish"
	}
	return c.queue("wait", args), work
}

// delay publishes one message per body to a wait queue. The first message expires after the given number of seconds,
// and each further message one second later.
func (c *client) delay(wait string, seconds int, bodies ...string) {
	c.t.Helper()
	for i, body := range bodies {
		if !c.publish("", wait, amqp.Publishing{Body: []byte(body), Expiration: fmt.Sprint(1000 * (seconds + i))}) {
			c.t.Fatalf("broker nacked %q", body)
		}
	}
}

// consumeAndCancel consumes n messages from a queue on a new channel, and cancels the consumer. It does not ack the
// messages.
func (c *client) consumeAndCancel(queue string, n int) (*amqp.Channel, []amqp.Delivery) {
	c.t.Helper()
	ch := c.open()
	c.must(ch.Qos(n, 0, false))
	in, err := ch.Consume(queue, "look", false, false, false, false, nil)
	c.must(err)
	held := make([]amqp.Delivery, n)
	for i := range held {
		held[i] = c.next(in)
	}
	c.must(ch.Cancel("look", false))
	return ch, held
}

// requeueAll requeues messages, if possible in their order and without counting failed deliveries. In RabbitMQ 4.3,
// basic.nack has this effect. In RabbitMQ 3.10, basic.nack would move a message in a quorum queue to the tail or count
// a failed delivery, so requeueAll only closes the channel.
func (c *client) requeueAll(ch *amqp.Channel, held []amqp.Delivery) {
	c.t.Helper()
	if c.b.Version != "3.10" && len(held) > 0 {
		c.must(held[len(held)-1].Nack(true, true))
	}
	c.must(ch.Close())
}

func eachKind(t *testing.T, test func(t *testing.T, c *client, kind string)) {
	t.Parallel()
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		for _, kind := range []string{"quorum", "classic"} {
			test(t, c, kind)
		}
	})
}

// After basic.nack without requeue, the broker immediately dead-letters a waiting message to the work queue, as if the
// message had expired, but with another reason. The nack does not count as a failed delivery in the work queue. Since
// RabbitMQ 4.3, basic.reject does.
func TestNackMovesWaitingMessageToWorkQueue(t *testing.T) {
	eachKind(t, func(t *testing.T, c *client, kind string) {
		wait, work := c.declareWaiting(kind)
		c.delay(wait, 3600, "1", "2", "3")
		ch, held := c.consumeAndCancel(wait, 3)
		c.must(held[1].Nack(false, false))
		c.requeueAll(ch, []amqp.Delivery{held[0], held[2]})
		d := c.get(work)
		death := d.Headers["x-death"].([]any)[0].(amqp.Table)
		got := fmt.Sprint(string(d.Body), d.Expiration, d.Redelivered, death["reason"], death["queue"] == wait, death["original-expiration"], death["count"])
		if want := fmt.Sprint("2", "", false, "rejected", true, "3601000", 1); got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
		if n, _ := d.Headers["x-delivery-count"].(int64); n != 0 {
			t.Errorf("%s: failed deliveries in the work queue: got %d, want 0", kind, n)
		}
		c.awaitReady(wait, 2)
	})
}

// Requeued messages return to their positions, which are before all other messages in the wait queue, and expire at
// their deadlines.
func TestRequeueKeepsPositionInWaitQueue(t *testing.T) {
	eachKind(t, func(t *testing.T, c *client, kind string) {
		wait, work := c.declareWaiting(kind)
		c.delay(wait, 3, "1", "2", "3", "4")
		ch, held := c.consumeAndCancel(wait, 2)
		c.delay(wait, 7, "5")
		c.requeueAll(ch, held)
		if got := c.bodies(work, 5); got != "1 2 3 4 5" {
			t.Errorf("%s: order: got %s, want 1 2 3 4 5", kind, got)
		}
	})
}

// If the deadline of a message passes while the message is unacked, the broker dead-letters the message to the work
// queue when the message is requeued.
func TestDeadlinePassesDuringInspection(t *testing.T) {
	eachKind(t, func(t *testing.T, c *client, kind string) {
		wait, work := c.declareWaiting(kind)
		c.delay(wait, 1, "1")
		ch, held := c.consumeAndCancel(wait, 1)
		c.delay(wait, 1, "2") // expires at the head, which proves that the deadline of message 1 has also passed
		if got := string(c.get(work).Body); got != "2" {
			t.Errorf("%s: message in the work queue: got %s, want 2", kind, got)
		}
		c.requeueAll(ch, held)
		if got := string(c.get(work).Body); got != "1" {
			t.Errorf("%s: message in the work queue: got %s, want 1", kind, got)
		}
	})
}

// An operator can inspect a message any number of times.
func TestWaitQueueAllowsRepeatedInspection(t *testing.T) {
	eachKind(t, func(t *testing.T, c *client, kind string) {
		wait, work := c.declareWaiting(kind)
		c.delay(wait, 3600, "1")
		for range 30 {
			ch, held := c.consumeAndCancel(wait, 1)
			c.requeueAll(ch, held)
		}
		c.awaitReady(wait, 1)
		if c.b.Version == "3.10" {
			return // 3.10 counts the deliveries, but has no delivery limit
		}
		ch, held := c.consumeAndCancel(wait, 1)
		if n, _ := held[0].Headers["x-delivery-count"].(int64); n != 0 {
			t.Errorf("%s: failed deliveries by inspections: got %d, want 0", kind, n)
		}
		c.must(held[0].Nack(false, false))
		c.must(ch.Close())
		if n, _ := c.get(work).Headers["x-delivery-count"].(int64); n != 0 {
			t.Errorf("%s: failed deliveries in the work queue: got %d, want 0", kind, n)
		}
	})
}

// The broker compares the arguments of a repeated declaration. Therefore a successful declaration proves that the wait
// queue has the expected target.
func TestDeclarationProvesWaitQueueTarget(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		wait, _ := c.declareWaiting("quorum")
		other := amqp.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "another",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		}
		_, err := c.open().QueueDeclare(wait, true, false, false, false, other)
		if refusal, ok := errors.AsType[*amqp.Error](err); !ok || refusal.Code != amqp.PreconditionFailed || !strings.Contains(refusal.Reason, "x-dead-letter-routing-key") {
			t.Errorf("declaration with another target: got %v, want PRECONDITION_FAILED for x-dead-letter-routing-key", err)
		}
	})
}

// If a client crashes during an inspection, a quorum queue counts a failed delivery. The messages and their order do
// not change.
func TestCrashDuringInspection(t *testing.T) {
	eachKind(t, func(t *testing.T, c *client, kind string) {
		wait, work := c.declareWaiting(kind)
		c.delay(wait, 3, "1", "2", "3")
		other := connect(t, c.b)
		other.consumeAndCancel(wait, 2)
		c.must(other.conn.Close())
		var got []string
		for range 3 {
			d := c.get(work)
			got = append(got, string(d.Body))
			c.must(d.Ack(false))
		}
		if !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("%s: order: got %s, want 1 2 3", kind, got)
		}
	})
}
