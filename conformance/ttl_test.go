package conformance

import (
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// expiring declares a queue that dead-letters its messages to another queue. The parameter args contains further
// arguments.
func (c *client) expiring(args amqp.Table) (source, dead string) {
	c.t.Helper()
	dead = c.queue("dead", nil)
	all := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
	maps.Copy(all, args)
	return c.queue("source", all), dead
}

func (c *client) putExpiring(queue, body, expiration string) {
	c.t.Helper()
	if !c.publish("", queue, amqp.Publishing{Body: []byte(body), Expiration: expiration}) {
		c.t.Fatalf("broker nacked %q", body)
	}
}

// If a queue has a message TTL and a message has an expiration, the shorter of the two applies, even without a
// consumer.
func TestShorterTTLApplies(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		source, dead := c.expiring(amqp.Table{"x-message-ttl": 50})
		c.putExpiring(source, "queue's", "600000")
		c.bodies(dead, 1)
		source, dead = c.expiring(amqp.Table{"x-message-ttl": 600000})
		c.putExpiring(source, "own", "50")
		c.bodies(dead, 1)
	})
}

// A message whose deadline has passed remains behind a message with a later deadline, and still counts as ready.
func TestOnlyHeadExpires(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, _ testkit.Target, c *client) {
				source, dead := c.expiring(amqp.Table{"x-queue-type": kind})
				other, otherDead := c.expiring(amqp.Table{"x-queue-type": kind})
				c.putExpiring(source, "long", "600000")
				c.putExpiring(source, "short", "1")
				// The message in the other queue serves as a clock, because it expires later than "short".
				c.putExpiring(other, "clock", "50")
				c.bodies(otherDead, 1)
				if n := c.ready(source); n != 2 {
					t.Errorf("ready: got %d, want 2", n)
				}
				if d := c.get(source); string(d.Body) != "long" { // an unacked message is no longer at the head
					t.Errorf("head: got %q, want long", d.Body)
				}
				if got := c.bodies(dead, 1); got != "short" {
					t.Errorf("dead letter: got %q, want \"short\"", got)
				}
			})
		})
	}
}

func TestZeroTTL(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		source, dead := c.expiring(nil)
		c.putExpiring(source, "nobody there", "0")
		d := c.get(dead)
		if deaths(t, d)[0]["original-expiration"] != "0" {
			t.Errorf("x-death: got %v, want original-expiration 0", deaths(t, d))
		}
		deliveries := c.consume(source, nil)
		c.putExpiring(source, "taken", "0")
		if d := c.next(deliveries); string(d.Body) != "taken" {
			t.Errorf("delivery: got %q, want \"taken\"", d.Body)
		}
	})
}

// An unacked message does not expire, but keeps its deadline. If the message is requeued after the deadline, the broker
// dead-letters it and does not redeliver it.
func TestUnackedMessageKeepsDeadline(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		source, dead := c.expiring(nil)
		other, otherDead := c.expiring(nil)
		c.putExpiring(source, "x", "1500")
		d := c.get(source)
		c.putExpiring(other, "clock", "2500")
		c.bodies(otherDead, 1)
		if n := c.ready(dead); n != 0 {
			t.Fatal("unacked message expired")
		}
		c.must(d.Nack(false, true))
		if got := c.bodies(dead, 1); got != "x" {
			t.Errorf("dead letter: got %q, want \"x\"", got)
		}
	})
}

func TestMessagesExpireBehindFullPrefetch(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		source, dead := c.expiring(amqp.Table{"x-message-ttl": 100})
		c.must(c.Qos(1, 0, false))
		deliveries := c.consume(source, nil)
		c.put(source, "1", "2")
		first := c.next(deliveries)
		if got := c.bodies(dead, 1); got != "2" {
			t.Errorf("dead letter: got %q, want \"2\"", got)
		}
		c.must(first.Ack(false))
		c.put(source, "3")
		if d := c.next(deliveries); string(d.Body) != "3" {
			t.Errorf("delivery: got %q, want \"3\"", d.Body)
		}
	})
}

// The message TTL of the next queue applies to a dead letter. The dead letter enters that queue at the tail.
func TestDeadLetterGetsTTLOfNextQueue(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		end := c.queue("end", nil)
		second := c.queue("second", amqp.Table{
			"x-message-ttl": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": end,
		})
		first := c.queue("first", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": second})
		c.putExpiring(first, "x", "30")
		d := c.get(end)
		entries := deaths(t, d)
		if len(entries) != 2 || entries[0]["queue"] != second || entries[1]["queue"] != first {
			t.Fatalf("x-death: got %v, want entries of %s and %s", entries, second, first)
		}
		if entries[0]["original-expiration"] != nil || entries[1]["original-expiration"] != "30" {
			t.Errorf("original-expiration: got %v, want none and 30", entries)
		}
	})
}

func TestExpirationMustBeANumber(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		for text, problem := range map[string]string{
			"foo": "no_integer", "-1": "{value_negative,-1}", "10x": `{leftover_string,"x"}`,
		} {
			c.refused(406, "invalid expiration '"+text+"': "+problem, func(ch *amqp.Channel) error {
				return ch.Publish("", q, false, false, amqp.Publishing{Expiration: text})
			})
		}
		c.putExpiring(q, "x", "4294967296")
		c.bodies(q, 1)
	})
}

// RabbitMQ 4 stores the expiration as a number.
func TestExpirationIsStoredAsANumber(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		q := c.queue("q", nil)
		for sent, want := range map[string]string{"60000": "60000", "+60000": "60000", "060000": "60000"} {
			if b.Version == "3.10" {
				want = sent
			}
			c.publish("", q, amqp.Publishing{Expiration: sent, Type: "type", Headers: amqp.Table{"a": "b"}, ContentType: "text/plain"})
			d := c.get(q)
			c.must(d.Ack(false))
			if d.Expiration != want || d.Type != "type" || d.Headers["a"] != "b" || d.ContentType != "text/plain" {
				t.Errorf("expiration %s: got %s in %+v, want %s", sent, d.Expiration, d, want)
			}
		}
	})
}

func TestMessageTTLArgument(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		for _, test := range []struct {
			value   any
			problem string
		}{
			{"1000", `"expected integer, got longstr"`},
			{1000.0, `"expected integer, got double"`},
			{int32(-1), "{value_negative,-1}"},
		} {
			c.refused(406, "invalid arg 'x-message-ttl' for queue '"+q+"' in vhost '/': "+test.problem,
				func(ch *amqp.Channel) error {
					_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-message-ttl": test.value})
					return err
				})
		}
		c.declare(q, amqp.Table{"x-message-ttl": int16(1000)})
		c.declare(q, amqp.Table{"x-message-ttl": int64(1000)}) // the broker does not compare the integer type
	})
}
