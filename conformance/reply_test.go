package conformance

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

const replyTo = "amq.rabbitmq.reply-to"

// A client can receive the reply to a request without a separate reply queue.
func TestDirectReplyTo(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		requests := c.queue("requests", nil)
		replies, err := c.Consume(replyTo, "replies", true, false, false, false, nil)
		c.must(err)
		c.publish("", requests, amqp.Publishing{Body: []byte("ping"), ReplyTo: replyTo, CorrelationId: "1"})

		server := connect(t, b)
		request := server.get(requests)
		if !strings.HasPrefix(request.ReplyTo, replyTo+".") {
			t.Errorf("reply-to: got %q, want prefix %q", request.ReplyTo, replyTo+".")
		}
		if q, err := server.open().QueueDeclarePassive(request.ReplyTo, false, false, false, false, nil); err != nil || q.Consumers != 1 {
			t.Errorf("reply queue: got %v, %v; want one consumer", q, err)
		}
		server.publish("", request.ReplyTo, amqp.Publishing{Body: []byte("pong"), CorrelationId: request.CorrelationId})
		reply := c.next(replies)
		if string(reply.Body) != "pong" || reply.CorrelationId != "1" || reply.Exchange != "" {
			t.Errorf("reply: got body %q, correlation ID %q, exchange %q, want \"pong\", \"1\", \"\"",
				reply.Body, reply.CorrelationId, reply.Exchange)
		}

		// After the cancellation, the reply address no longer exists.
		c.must(c.Cancel("replies", false))
		testkit.Eventually(t, timeout, func() bool {
			ch := server.open()
			defer ch.Close()
			_, err := ch.QueueDeclarePassive(request.ReplyTo, false, false, false, false, nil)
			return err != nil && err.(*amqp.Error).Code == 404
		})
	})
}

func TestDirectReplyToErrors(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		c.refused(406, "reply consumer cannot acknowledge", func(ch *amqp.Channel) error {
			_, err := ch.Consume(replyTo, "", false, false, false, false, nil)
			return err
		})
		c.refused(406, "reply consumer already set", func(ch *amqp.Channel) error {
			for range 2 {
				if _, err := ch.Consume(replyTo, "", true, false, false, false, nil); err != nil {
					return err
				}
			}
			return nil
		})
		c.refused(406, "fast reply consumer does not exist", func(ch *amqp.Channel) error {
			return ch.Publish("amq.direct", "k", false, false, amqp.Publishing{ReplyTo: replyTo})
		})
	})
}

// replyName returns the name of a reply queue. If gone is set, its consumer no longer exists.
func (c *client) replyName(gone bool) string {
	c.t.Helper()
	requests, ch := c.queue("requests", nil), c.open()
	_, err := ch.Consume(replyTo, "replies", true, false, false, false, nil)
	c.must(err)
	c.must(ch.Publish("", requests, false, false, amqp.Publishing{ReplyTo: replyTo}))
	name := c.get(requests).ReplyTo
	if gone {
		c.must(ch.Close())
	}
	return name
}

// Clients can use the name of a reply queue for a publish, a deletion or a purge, even after the deletion of the queue. They
// cannot bind the queue or consume from it.
func TestOperationsOnReplyQueues(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 treats reply queues as missing
		}
		for _, gone := range []bool{false, true} {
			name := c.replyName(gone)
			if c.returnsMandatory(name) {
				t.Errorf("gone %t: broker returned a reply", gone)
			}
			ch := c.open()
			_, err := ch.QueueDelete(name, false, false, false)
			c.must(err)
			_, err = ch.QueuePurge(name, false)
			c.must(err)
			c.refused(403, "cannot bind or unbind to a volatile (direct reply-to) queue", func(ch *amqp.Channel) error {
				return ch.QueueBind(name, "k", "amq.direct", false, nil)
			})
			c.refused(403, "cannot bind or unbind to a volatile (direct reply-to) queue", func(ch *amqp.Channel) error {
				return ch.QueueUnbind(name, "k", "amq.direct", nil)
			})
			c.refused(406, "only creator channel may consume from queue '"+name+"' in vhost '/'", func(ch *amqp.Channel) error {
				_, err := ch.Consume(name, "", true, false, false, false, nil)
				return err
			})
			c.refused(540, "basic.get not supported by volatile queue '"+name+"' in vhost '/'", func(ch *amqp.Channel) error {
				_, _, err := ch.Get(name, true)
				return err
			})
			_, err = c.open().QueueDeclarePassive(name, false, false, false, false, nil)
			if missing := err != nil && err.(*amqp.Error).Code == 404; missing != gone {
				t.Errorf("gone %t: declaration: %v", gone, err)
			}
		}

		// A name that the broker has not generated is missing.
		bogus := replyTo + ".bogus"
		if !c.returnsMandatory(bogus) {
			t.Errorf("broker did not return a message for %s", bogus)
		}
		c.refused(404, "no queue '"+bogus+"' in vhost '/'", func(ch *amqp.Channel) error {
			_, err := ch.QueuePurge(bogus, false)
			return err
		})
		// The name that clients consume from exists for declarations only.
		if q, err := c.open().QueueDeclarePassive(replyTo, false, false, false, false, nil); err != nil || q.Consumers != 1 {
			t.Errorf("declaration of %s: got %v, %v; want one consumer", replyTo, q, err)
		}
		c.refused(404, "no queue '"+replyTo+"' in vhost '/'", func(ch *amqp.Channel) error {
			return ch.QueueBind(replyTo, "k", "amq.direct", false, nil)
		})
	})
}

// returnsMandatory publishes a mandatory message, waits for its ack, and reports whether the broker returned the message.
func (c *client) returnsMandatory(queue string) bool {
	c.t.Helper()
	ch := c.open()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{})
	c.must(err)
	if !confirm.Wait() {
		c.t.Errorf("broker nacked a message for %s", queue)
	}
	select {
	case <-returned:
		return true
	default:
		return false
	}
}
