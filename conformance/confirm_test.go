package conformance

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestReturnComesBeforeItsConfirm(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		returns := c.NotifyReturn(make(chan amqp.Return)) // unbuffered, so that the test receives the events in the order of the frames
		confirms := c.NotifyPublish(make(chan amqp.Confirmation))
		sent := amqp.Publishing{MessageId: "id", Headers: amqp.Table{"h": "v"}, Body: []byte("body")}
		c.must(c.Publish("amq.direct", "nowhere", true, false, sent))
		select {
		case r := <-returns:
			if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.Exchange != "amq.direct" || r.RoutingKey != "nowhere" {
				t.Errorf("returned with %d %q %q %q", r.ReplyCode, r.ReplyText, r.Exchange, r.RoutingKey)
			}
			if r.MessageId != "id" || r.Headers["h"] != "v" || string(r.Body) != "body" {
				t.Errorf("not the message that was sent: %v", r)
			}
		case <-confirms:
			t.Fatal("confirmed before it was returned")
		case <-time.After(timeout):
			t.Fatal("not returned")
		}
		if confirm := <-confirms; !confirm.Ack || confirm.DeliveryTag != 1 {
			t.Errorf("confirm is %v", confirm)
		}
		// The broker only confirms a message that is not mandatory. The confirm has the next tag.
		c.must(c.Publish("amq.direct", "nowhere", false, false, sent))
		if confirm := <-confirms; !confirm.Ack || confirm.DeliveryTag != 2 {
			t.Errorf("confirm is %v", confirm)
		}
	})
}

func TestEveryPublishIsConfirmed(t *testing.T) {
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
			t.Errorf("last is %v", last)
		}
		c.awaitReady(q, n)
	})
}

// A publish to a missing exchange closes the channel. The broker does not send a nack.
func TestMissingExchangeLosesTheConfirms(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		confirms := c.NotifyPublish(make(chan amqp.Confirmation, 1))
		closed := c.NotifyClose(make(chan *amqp.Error, 1))
		c.must(c.Publish(testkit.Name(t, "missing"), "", false, false, amqp.Publishing{}))
		if e := <-closed; e == nil || e.Code != 404 {
			t.Errorf("closed with %v", e)
		}
		if confirm, ok := <-confirms; ok {
			t.Errorf("confirmed: %v", confirm)
		}
	})
}

func TestOneCopyForEachQueue(t *testing.T) {
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
			t.Errorf("%d copies", n)
		}
		// The queue was bound twice with this key. One unbind removes the binding.
		c.must(c.QueueUnbind(q, "#", x, nil))
		c.must(c.QueueUnbind(q, "a.*", x, nil))
		c.must(c.ExchangeUnbind(y, "#", x, false, nil))
		c.publish(x, "a.b", amqp.Publishing{Body: []byte("2")})
		if n := c.ready(q); n != 1 {
			t.Errorf("%d copies after everything was unbound", n)
		}
	})
}

func TestEmptyBody(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.publish("", q, amqp.Publishing{MessageId: "empty"})
		if d := c.get(q); d.MessageId != "empty" || len(d.Body) != 0 {
			t.Errorf("got %v", d)
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
			t.Errorf("%d bytes came back changed", len(d.Body))
		}
	})
}

// The broker also acks a message that the queue drops or expires before a delivery.
func TestConfirmedThoughGone(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", amqp.Table{"x-message-ttl": 0})
		if !c.publish("", q, amqp.Publishing{}) {
			t.Error("expired at once: nack")
		}
		q = c.queue("q", amqp.Table{"x-max-length": 0})
		if !c.publish("", q, amqp.Publishing{}) {
			t.Error("dropped at once: nack")
		}
	})
}
