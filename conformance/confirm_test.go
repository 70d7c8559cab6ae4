package conformance

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestReturnPrecedesConfirm(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		// The channels are unbuffered, so that the test receives the events in the order of the frames.
		returns := c.NotifyReturn(make(chan amqp.Return))
		confirms := c.NotifyPublish(make(chan amqp.Confirmation))
		sent := amqp.Publishing{MessageId: "id", Headers: amqp.Table{"h": "v"}, Body: []byte("body")}
		c.must(c.Publish("amq.direct", "nowhere", true, false, sent))
		select {
		case r := <-returns:
			if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.Exchange != "amq.direct" || r.RoutingKey != "nowhere" {
				t.Errorf("basic.return: got %d %q %q %q, want 312 \"NO_ROUTE\" \"amq.direct\" and the routing key",
					r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey)
			}
			if r.MessageId != "id" || r.Headers["h"] != "v" || string(r.Body) != "body" {
				t.Errorf("returned message must match the published message: got %v", r)
			}
		case <-confirms:
			t.Fatal("confirm precedes the return")
		case <-time.After(timeout):
			t.Fatal("message was not returned")
		}
		if confirm := <-confirms; !confirm.Ack || confirm.DeliveryTag != 1 {
			t.Errorf("confirm: got %v, want an ack of tag 1", confirm)
		}
		// The broker acks an unroutable message that is not mandatory. Its confirm has the next tag.
		c.must(c.Publish("amq.direct", "nowhere", false, false, sent))
		if confirm := <-confirms; !confirm.Ack || confirm.DeliveryTag != 2 {
			t.Errorf("confirm: got %v, want an ack of tag 2", confirm)
		}
	})
}

func TestBrokerConfirmsEveryPublish(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		const n = 1000
		q := c.queue("q", nil)
		var last *amqp.DeferredConfirmation
		for range n {
			confirm, err := c.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{})
			c.must(err)
			last = confirm
		}
		if !last.Wait() || last.DeliveryTag != n {
			t.Errorf("last confirm: got %v, want an ack of tag %d", last, n)
		}
		c.awaitReady(q, n)
	})
}

// If a client publishes to a missing exchange, the broker closes the channel. It does not nack the message.
func TestMissingExchangeClosesChannelWithoutConfirm(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		confirms := c.NotifyPublish(make(chan amqp.Confirmation, 1))
		closed := c.NotifyClose(make(chan *amqp.Error, 1))
		c.must(c.Publish(testkit.Name(t, "missing"), "", false, false, amqp.Publishing{}))
		if e := <-closed; e == nil || e.Code != 404 {
			t.Errorf("channel closed with %v, want code 404", e)
		}
		if confirm, ok := <-confirms; ok {
			t.Errorf("confirm: got %v, want none", confirm)
		}
	})
}

func TestEachQueueGetsOneCopy(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x, y := c.exchange("x", "topic"), c.exchange("y", "topic")
		q := c.queue("q", nil)
		c.bind(q, "a.*", x)
		c.bind(q, "a.*", x)
		c.bind(q, "#", x)
		c.must(c.ExchangeBind(y, "#", x, false, nil))
		c.must(c.ExchangeBind(x, "#", y, false, nil)) // a cycle
		c.bind(q, "a.b", y)
		c.publish(x, "a.b", amqp.Publishing{Body: []byte("1")})
		if n := c.ready(q); n != 1 {
			t.Errorf("copies: got %d, want 1", n)
		}
		// The queue was bound twice with this key, but a single unbind removes the binding.
		c.must(c.QueueUnbind(q, "#", x, nil))
		c.must(c.QueueUnbind(q, "a.*", x, nil))
		c.must(c.ExchangeUnbind(y, "#", x, false, nil))
		c.publish(x, "a.b", amqp.Publishing{Body: []byte("2")})
		if n := c.ready(q); n != 1 {
			t.Errorf("copies after the unbinds: got %d, want 1", n)
		}
	})
}

func TestEmptyBody(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.publish("", q, amqp.Publishing{MessageId: "empty"})
		if d := c.get(q); d.MessageId != "empty" || len(d.Body) != 0 {
			t.Errorf("message: got %v, want an empty body", d)
		}
	})
}

func TestBodyOfManyFrames(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		body := make([]byte, 1<<20+17)
		for i := range body {
			body[i] = byte(i * 7)
		}
		c.publish("", q, amqp.Publishing{Body: body})
		if d := c.get(q); string(d.Body) != string(body) {
			t.Errorf("body of %d bytes differs from the published body", len(d.Body))
		}
	})
}

// The broker also acks a message that the queue drops, and a message that expires before its delivery.
func TestBrokerConfirmsDroppedMessages(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-message-ttl": 0})
		if !c.publish("", q, amqp.Publishing{}) {
			t.Error("broker nacked a message that expires immediately")
		}
		q = c.queue("q", amqp.Table{"x-max-length": 0})
		if !c.publish("", q, amqp.Publishing{}) {
			t.Error("broker nacked a message that the queue drops")
		}
	})
}
