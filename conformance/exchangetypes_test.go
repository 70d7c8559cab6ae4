package conformance

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// without310 runs a test on the brokers that have an exchange type, and expects that RabbitMQ 3.10 refuses the type.
func without310(t *testing.T, kind string, test func(t *testing.T, b testkit.Target, c *client)) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version != "3.10" {
			test(t, b, c)
			return
		}
		c.refused(503, "unknown exchange type '"+kind+"'", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(testkit.Name(t, "x"), kind, true, false, false, false, nil)
		})
	})
}

// An exchange of the type x-local-random routes each message to one of its queues. Only classic queues can be bound.
func TestLocalRandomExchange(t *testing.T) {
	without310(t, "x-local-random", func(t *testing.T, _ testkit.Target, c *client) {
		x, q1, q2 := c.exchange("x", "x-local-random"), c.queue("q1", nil), c.queue("q2", nil)
		to, quorum := c.exchange("to", "fanout"), c.queue("quorum", amqp.Table{"x-queue-type": "quorum"})
		for text, bind := range map[string]func(ch *amqp.Channel) error{
			"Non empty binding 'k' key not permitted":  func(ch *amqp.Channel) error { return ch.QueueBind(quorum, "k", x, false, nil) },
			"Non empty binding 'to' key not permitted": func(ch *amqp.Channel) error { return ch.ExchangeBind(to, "to", x, false, nil) },
			"Destination not found":                    func(ch *amqp.Channel) error { return ch.ExchangeBind(to, "", x, false, nil) },
			"Queue type rabbit_quorum_queue not valid for this exchange type": func(ch *amqp.Channel) error {
				return ch.QueueBind(quorum, "", x, false, nil)
			},
			"inequivalent arg 'type' for exchange '" + x + "' in vhost '/': received 'direct' but current is ''x-local-random''": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "direct", true, false, false, false, nil)
			},
			"inequivalent arg 'type' for exchange '" + to + "' in vhost '/': received ''x-local-random'' but current is 'fanout'": func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(to, "x-local-random", true, false, false, false, nil)
			},
		} {
			c.refused(406, text, bind)
		}
		c.refused(404, "no queue 'missing' in vhost '/'", func(ch *amqp.Channel) error { return ch.QueueBind("missing", "k", x, false, nil) })
		c.must(c.QueueUnbind(q1, "k", x, nil))
		c.must(c.ExchangeDeclarePassive(x, "direct", true, false, false, false, nil))

		c.bind(q1, "", x)
		c.bind(q2, "", x)
		before, alternate := c.exchange("before", "fanout"), testkit.Name(t, "alternate")
		c.must(c.ExchangeBind(x, "", before, false, nil))
		c.must(c.ExchangeDeclare(alternate, "direct", true, false, false, false, amqp.Table{"alternate-exchange": x}))
		c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(alternate, false, false) })
		const n = 100 // the same queue for all of them has a probability of 2^-99
		for _, from := range []string{x, before, alternate} {
			for range n {
				c.publish(from, "k", amqp.Publishing{})
			}
			n1, n2 := c.ready(q1), c.ready(q2)
			if n1 == 0 || n2 == 0 || n1+n2 != n {
				t.Errorf("messages by way of %s: got %d and %d, want %d in both queues", from, n1, n2, n)
			}
			for _, q := range []string{q1, q2} {
				_, err := c.QueuePurge(q, false)
				c.must(err)
			}
		}
		c.must(c.QueueUnbind(q1, "", x, nil))
		c.must(c.QueueUnbind(q2, "", x, nil))
		c.returned(x, "k")
	})
}

// returned publishes a mandatory message that no queue receives.
func (c *client) returned(exchange, key string) {
	c.t.Helper()
	returned := c.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := c.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{})
	c.must(err)
	confirm.Wait()
	<-returned
}

// An exchange of the type x-modulus-hash routes messages with equal keys to the same binding, the same one on each broker.
func TestModulusHashExchange(t *testing.T) {
	var want map[string]string // the queue of each message on the first broker
	without310(t, "x-modulus-hash", func(t *testing.T, _ testkit.Target, c *client) {
		x := c.exchange("x", "x-modulus-hash")
		c.returned(x, "k")
		destinations := map[string]string{}
		for _, label := range []string{"b", "a", "c", "é"} {
			q := c.queue(label, nil)
			destinations[q] = label
			c.bind(q, "ignored", x)
		}
		for key, args := range map[string]amqp.Table{"again": nil, "ignored": {"argument": "too"}} { // count separately
			for q, label := range destinations {
				if label == "b" {
					c.must(c.QueueBind(q, key, x, false, args))
				}
			}
		}
		// An exchange, even if its name is greater, precedes all queues.
		next, behind := c.exchange("z", "fanout"), c.queue("behind", nil)
		destinations[behind] = "behind"
		c.must(c.ExchangeBind(next, "", x, false, nil))
		c.bind(behind, "", next)
		c.returned(c.exchange("other", "x-modulus-hash"), "k")

		messages := map[string]amqp.Publishing{"": {}, "key": {}, "\xff": {}}
		for i := range 40 {
			messages[fmt.Sprint("key ", i)] = amqp.Publishing{}
			messages[fmt.Sprint("copy ", i)] = amqp.Publishing{Headers: amqp.Table{"CC": []any{"a", fmt.Sprint(i)}, "BCC": []any{"b"}}}
		}
		for i := range 20 { // repeated keys
			k := fmt.Sprint(i)
			messages["BCC "+k] = amqp.Publishing{Headers: amqp.Table{"BCC": []any{k, k}}}
			messages["CC "+k] = amqp.Publishing{Headers: amqp.Table{"CC": []any{k, "x", k}}}
			messages["both "+k] = amqp.Publishing{Headers: amqp.Table{"CC": []any{k}, "BCC": []any{"y", k}}}
			messages["BCC empty "+k] = amqp.Publishing{Headers: amqp.Table{"BCC": []any{"", ""}}}
			messages["CC empty "+k] = amqp.Publishing{Headers: amqp.Table{"CC": []any{"", k}}}
			messages["own "+k] = amqp.Publishing{Headers: amqp.Table{"CC": []any{"own " + k, "z"}}}
		}
		source := c.queue("source", amqp.Table{"x-dead-letter-exchange": x, "x-dead-letter-routing-key": "dead", "x-message-ttl": 0})
		got := map[string]string{}
		find := func(label string) {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				for q, destination := range destinations {
					if _, found, err := c.Get(q, true); err != nil || found {
						got[label] = destination
						return err
					}
				}
				return fmt.Errorf("no queue has the message %q", label)
			})
		}
		for key, m := range messages {
			c.publish(x, key, m)
			find(key)
		}
		c.publish("", source, amqp.Publishing{Headers: amqp.Table{"CC": []any{"nowhere"}}})
		find("dead letter")
		if want == nil {
			want = got
		}
		for key, queue := range want {
			if got[key] != queue {
				t.Errorf("queue for %q: got %q, want %q", key, got[key], queue)
			}
		}
	})
}
