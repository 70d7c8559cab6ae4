package conformance

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestRestart declares a topology and publishes messages that get into different states. It then restarts the broker,
// and checks the topology and the messages. It is a single test, because a restart of RabbitMQ takes about ten seconds.
func TestRestart(t *testing.T) {
	eachOwn(t, func(t *testing.T, b *ownBroker) {
		c := connect(t, b.Target)
		quorum := amqp.Table{"x-queue-type": "quorum"}
		persistent := func(body string) amqp.Publishing {
			return amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
		}
		must := func(exchange, key string, m amqp.Publishing) {
			t.Helper()
			if !c.publish(exchange, key, m) {
				t.Fatalf("broker nacked %q", m.Body)
			}
		}

		// Durable and transient exchanges, with bindings to queues and exchanges.
		c.declare("bound", nil)
		c.must(c.ExchangeDeclare("first", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "alternate"}))
		c.must(c.ExchangeDeclare("second", "headers", true, false, false, false, nil))
		c.must(c.ExchangeDeclare("alternate", "fanout", true, false, false, false, nil))
		c.must(c.ExchangeBind("second", "a.*", "first", false, nil))
		c.must(c.QueueBind("bound", "", "second", false, amqp.Table{"x-match": "all", "n": int32(1)}))
		c.must(c.QueueBind("bound", "", "alternate", false, nil))
		c.must(c.ExchangeDeclare("transient", "topic", false, false, false, false, nil))
		c.must(c.QueueBind("bound", "", "transient", false, nil))
		_, err := c.QueueDeclare("exclusive", true, false, true, false, nil)
		c.must(err)

		// Persistent and transient messages.
		c.declare("classic", nil)
		c.declare("quorum", quorum)
		for _, queue := range []string{"classic", "quorum"} {
			must("", queue, persistent("1"))
			must("", queue, amqp.Publishing{DeliveryMode: amqp.Transient, Body: []byte("transient")})
			must("", queue, persistent("2"))
			acked := c.get(queue)
			c.must(acked.Ack(false))
		}

		// A message that expires while the broker is stopped, and a message that does not expire.
		ttl := time.Second
		if b.Version == "3.10" { // 3.10 takes six seconds to stop
			ttl = 8 * time.Second
		}
		c.declare("dead", nil)
		toDead := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
		c.declare("expiring", toDead)
		must("", "expiring", amqp.Publishing{
			DeliveryMode: amqp.Persistent, Expiration: fmt.Sprint(ttl.Milliseconds()), Body: []byte("expired"),
		})
		expired := time.Now().Add(ttl)
		must("", "expiring", persistent("without TTL"))

		// Unacked messages.
		c.declare("unacked", nil)
		for _, body := range []string{"delivered", "delivered, too", "waiting"} {
			must("", "unacked", persistent(body))
		}
		c.get("unacked")
		c.get("unacked")

		// A dead letter, and a requeued message.
		c.declare("deadly", toDead)
		must("", "deadly", persistent("died"))
		died := c.get("deadly")
		c.must(died.Reject(false))
		c.awaitReady("dead", 1)
		c.declare("requeued", quorum)
		must("", "requeued", persistent("twice"))
		for range 2 {
			d := c.get("requeued")
			c.must(d.Reject(true))
		}
		c.awaitReady("requeued", 1)

		b.stop()
		time.Sleep(time.Until(expired))
		b.start()
		c = connect(t, b.Target)

		// Durable exchanges, queues and bindings survive, as do all messages in quorum queues and persistent messages
		// in classic queues.
		must("first", "a.b", amqp.Publishing{Headers: amqp.Table{"n": int32(1)}, Body: []byte("by headers")})
		must("first", "b", amqp.Publishing{Body: []byte("by the alternate exchange")})
		if got := c.bodies("bound", 2); got != "by headers by the alternate exchange" {
			t.Errorf("messages through the bindings: got %s, want by headers by the alternate exchange", got)
		}
		if !b.IsRabbitMQ || b.Version != "4.3" { // RabbitMQ 4.3 also recovers transient exchanges
			c.refused(404, "no exchange 'transient' in vhost '/'", func(ch *amqp.Channel) error {
				return ch.ExchangeDeclarePassive("transient", "topic", false, false, false, false, nil)
			})
		}
		c.refused(404, "no queue 'exclusive' in vhost '/'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive("exclusive", true, false, true, false, nil)
			return err
		})
		if n := c.ready("classic"); n != 1 {
			t.Errorf("classic queue: got %d messages, want 1", n)
		}
		if got := c.bodies("classic", 1); got != "2" {
			t.Errorf("classic queue: got %s, want 2", got)
		}
		if got := c.bodies("quorum", 2); got != "transient 2" {
			t.Errorf("quorum queue: got %s, want transient 2", got)
		}
		c.declare("quorum", quorum) // succeeds only if the properties are the same as before

		// Dead letters keep their history, messages also expire while the broker is stopped, and a quorum queue keeps
		// the delivery counts.
		c.awaitReady("dead", 2)
		first, second := c.get("dead"), c.get("dead")
		if string(first.Body) != "died" || deathOf(first, "reason") != "rejected" || deathOf(first, "queue") != "deadly" ||
			deathOf(first, "count") != int64(1) || first.Headers["x-first-death-queue"] != "deadly" {
			t.Errorf("first dead letter: got %s with %v, want died, rejected once by deadly", first.Body, first.Headers)
		}
		if string(second.Body) != "expired" || deathOf(second, "reason") != "expired" || deathOf(second, "queue") != "expiring" {
			t.Errorf("second dead letter: got %s with %v, want expired, expired in expiring", second.Body, second.Headers)
		}
		if got := c.bodies("expiring", 1); got != "without TTL" {
			t.Errorf("unexpired message: got %s, want without TTL", got)
		}
		if d := c.get("requeued"); d.Headers["x-delivery-count"] != int64(2) || !d.Redelivered {
			t.Errorf("message requeued twice: got %v, redelivered %v, want x-delivery-count 2, true", d.Headers, d.Redelivered)
		}

		// Unacked messages are redelivered.
		for _, want := range []struct {
			body        string
			redelivered bool
		}{{"delivered", true}, {"delivered, too", true}, {"waiting", false}} {
			if d := c.get("unacked"); string(d.Body) != want.body || d.Redelivered != want.redelivered {
				t.Errorf("unacked message: got %q, redelivered %v, want %+v", d.Body, d.Redelivered, want)
			}
		}
	})
}

// deathOf returns a field of the most recent x-death entry of a message, or nil.
func deathOf(d amqp.Delivery, field string) any {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return nil
	}
	last, _ := deaths[0].(amqp.Table)
	return last[field]
}
