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
