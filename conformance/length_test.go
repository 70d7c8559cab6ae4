package conformance

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// confirms publishes one message per body and returns the confirms of the broker: + for an ack, - for a nack.
func (c *client) confirms(queue string, bodies ...string) string {
	c.t.Helper()
	var b strings.Builder
	for _, body := range bodies {
		if c.publish("", queue, amqp.Publishing{Body: []byte(body)}) {
			b.WriteByte('+')
		} else {
			b.WriteByte('-')
		}
	}
	return b.String()
}

func TestDropHead(t *testing.T) {
	for name, args := range map[string]amqp.Table{
		"by number":          {"x-max-length": 2},
		"by size":            {"x-max-length-bytes": 2},
		"explicit drop-head": {"x-max-length": 2, "x-overflow": "drop-head"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, _ testkit.Target, c *client) {
				q, dead := c.expiring(args)
				if got := c.confirms(q, "1", "2", "3", "4"); got != "++++" {
					t.Errorf("confirms: got %s, want ++++", got)
				}
				if got := c.bodies(q, 2); got != "3 4" {
					t.Errorf("messages in the queue: got %s, want 3 4", got)
				}
				for _, want := range []string{"1", "2"} {
					if d := c.get(dead); string(d.Body) != want || deaths(t, d)[0]["reason"] != "maxlen" {
						t.Errorf("dead letter: got %q with reason %v, want %q with reason maxlen", d.Body, deaths(t, d)[0]["reason"], want)
					}
				}
			})
		})
	}
}

// Only ready messages count towards the maximum length.
func TestUnackedMessagesDoNotCount(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-max-length": 1})
		c.put(q, "1")
		d := c.get(q)
		c.put(q, "2")
		if n := c.ready(q); n != 1 {
			t.Errorf("ready: got %d, want 1", n)
		}
		// The requeued message is at the head again. With it, the queue exceeds its maximum length, and drops its head.
		c.must(d.Nack(false, true))
		if got := c.bodies(q, 1); got != "2" {
			t.Errorf("messages in the queue: got %s, want 2", got)
		}
	})
}

func TestLengthZero(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, dead := c.expiring(amqp.Table{"x-max-length": 0})
		c.put(q, "nobody there")
		if got := c.bodies(dead, 1); got != "nobody there" {
			t.Errorf("dead letter: got %s, want the message without a consumer", got)
		}
		deliveries := c.consume(q, nil)
		c.put(q, "taken")
		if d := c.next(deliveries); string(d.Body) != "taken" {
			t.Errorf("delivery: got %q, want \"taken\"", d.Body)
		}
	})
}

// With the overflow behavior reject-publish, the broker nacks a message for a full queue. It neither returns nor
// dead-letters the message.
func TestRejectPublish(t *testing.T) {
	for kind, want := range map[string]string{"classic": "+--", "quorum": "++-"} { // a quorum queue accepts one extra message
		t.Run(kind, func(t *testing.T) {
			each(t, func(t *testing.T, _ testkit.Target, c *client) {
				q, dead := c.expiring(amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"})
				returned := c.NotifyReturn(make(chan amqp.Return, 1))
				if got := c.confirms(q, "1", "2", "3"); got != want {
					t.Errorf("confirms: got %s, want %s", got, want)
				}
				confirm, err := c.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{})
				c.must(err)
				if confirm.Wait() {
					t.Error("broker acked a mandatory message")
				}
				select {
				case r := <-returned:
					t.Errorf("returned messages: got %v, want none", r)
				default:
				}
				if n := c.ready(dead); n != 0 {
					t.Errorf("dead letters: got %d, want 0", n)
				}
			})
		})
	}
}

func TestRejectPublishDLX(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, dead := c.expiring(amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
		if got := c.confirms(q, "1", "2"); got != "+-" {
			t.Errorf("confirms: got %s, want +-", got)
		}
		if d := c.get(dead); string(d.Body) != "2" || deaths(t, d)[0]["reason"] != "maxlen" {
			t.Errorf("dead letter: got %q, %v, want \"2\" with reason maxlen", d.Body, deaths(t, d))
		}
		// A quorum queue accepts this argument, but dead-letters the message at its head.
		q, dead = c.expiring(amqp.Table{"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish-dlx"})
		if got := c.confirms(q, "1", "2"); got != "++" {
			t.Errorf("confirms: got %s, want ++", got)
		}
		if got := c.bodies(dead, 1); got != "1" {
			t.Errorf("dead letter: got %s, want 1", got)
		}
	})
}

// If one of several queues is full, the broker nacks the message, although the other queues store it.
func TestNackIfOneQueueIsFull(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x := c.exchange("x", "fanout")
		full := c.queue("full", amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
		roomy := c.queue("roomy", nil)
		c.bind(full, "", x)
		c.bind(roomy, "", x)
		if c.publish(x, "", amqp.Publishing{}) {
			t.Error("broker acked the message")
		}
		c.awaitReady(roomy, 1)
	})
}

func TestLengthArguments(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		for _, arg := range []string{"x-max-length", "x-max-length-bytes"} {
			c.refused(406, "invalid arg '"+arg+"' for queue '"+q+"' in vhost '/': {value_negative,-1}", func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{arg: -1})
				return err
			})
		}
	})
}
