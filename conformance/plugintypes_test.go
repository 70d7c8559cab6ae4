package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// The nodes of scripts/rabbitmq enable the plugins with the exchange types in this file.

// exchangeWith declares a durable exchange with arguments, and deletes it after the test.
func (c *client) exchangeWith(label, kind string, args amqp.Table) string {
	c.t.Helper()
	name := testkit.Name(c.t, label)
	c.must(c.ExchangeDeclare(name, kind, true, false, false, false, args))
	c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(name, false, false) })
	return name
}

// counts returns the number of messages in each queue, and removes them.
func (c *client) counts(queues ...string) []int {
	c.t.Helper()
	n := make([]int, len(queues))
	for i, q := range queues {
		n[i] = c.ready(q)
		_, err := c.QueuePurge(q, false)
		c.must(err)
	}
	return n
}

// publishAll publishes messages, and then waits for all confirms, which may be out of order.
func (c *client) publishAll(exchange string, n int, message func(i int) (key string, m amqp.Publishing)) {
	c.t.Helper()
	confirms := make([]*amqp.DeferredConfirmation, n)
	for i := range n {
		key, m := message(i)
		var err error
		confirms[i], err = c.PublishWithDeferredConfirm(exchange, key, false, false, m)
		c.must(err)
	}
	for _, confirm := range confirms {
		if !confirm.Wait() {
			c.t.Fatal("broker nacked a message")
		}
	}
}

func TestConsistentHashExchangeRefusesInvalidArguments(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		x, q := c.exchange("x", "x-consistent-hash"), c.queue("q", nil)
		for key, text := range map[string]string{
			"0":                      "The binding key must be greater than 0",
			"-1":                     "The binding key must be greater than 0",
			"-999999999999999999999": "The binding key must be greater than 0",
			"":                       "The binding key must be an integer: <<>>",
			"x":                      `The binding key must be an integer: <<"x">>`,
			"1.5":                    `The binding key must be an integer: <<"1.5">>`,
			" 1":                     `The binding key must be an integer: <<" 1">>`,
			"1_0":                    `The binding key must be an integer: <<"1_0">>`,
			"10001":                  "The binding key must not exceed 10000",
			"99999999999999999999":   "The binding key must not exceed 10000",
		} {
			if b.Version == "3.10" && slices.Contains([]string{"10001", "99999999999999999999"}, key) {
				continue // 3.10 has no limit
			}
			c.refused(406, text, func(ch *amqp.Channel) error {
				name := q
				if key == "" { // an empty key with an empty queue name would be the name of the last declared queue
					return ch.QueueBind(name, "", x, false, nil)
				}
				return ch.QueueBind(name, key, x, false, nil)
			})
		}
		for _, key := range []string{"+2", "007", "10000"} {
			c.bind(q, key, x)
		}
		for text, args := range map[string]amqp.Table{
			"hash-header and hash-property are mutually exclusive": {"hash-header": "h", "hash-property": "message_id"},
			"Unsupported property: app_id":                         {"hash-property": "app_id"},
			"Unsupported property: message-id":                     {"hash-property": "message-id"},
		} {
			c.refused(406, text, func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(testkit.Name(t, "refused"), "x-consistent-hash", true, false, false, false, args)
			})
		}
		c.exchangeWith("again", "x-consistent-hash", amqp.Table{"hash-header": "h"})
		c.exchangeWith("again", "x-consistent-hash", amqp.Table{"hash-header": "other"}) // RabbitMQ ignores the difference
	})
}

func TestConsistentHashExchangeDistributesByWeight(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x, q1, q3, behind := c.exchange("x", "x-consistent-hash"), c.queue("q1", nil), c.queue("q3", nil), c.queue("behind", nil)
		c.returned(x, "k")
		next := c.exchange("next", "fanout")
		c.bind(behind, "", next)
		c.bind(q1, "1", x)
		c.bind(q3, "3", x)
		c.must(c.ExchangeBind(next, "2", x, false, nil))
		const n = 3000
		numbered := func(i int) (string, amqp.Publishing) { return fmt.Sprint("order ", i), amqp.Publishing{} }
		c.publishAll(x, n, numbered)
		first := c.counts(q1, q3, behind)
		for i, share := range []float64{1. / 6, 3. / 6, 2. / 6} {
			// A deviation of six standard deviations has a probability of 10^-9.
			if want := n * share; math.Abs(float64(first[i])-want) > 6*math.Sqrt(want) {
				t.Errorf("got %d messages of %d, want a share of %.2f: %v", first[i], n, share, first)
			}
		}
		c.publishAll(x, n, numbered)
		if again := c.counts(q1, q3, behind); !slices.Equal(again, first) {
			t.Errorf("same keys: got %v, want %v", again, first)
		}

		// The other queues keep the keys that they had.
		c.must(c.QueueUnbind(q3, "3", x, nil))
		c.publishAll(x, n, numbered)
		after := c.counts(q1, q3, behind)
		if after[1] != 0 || after[0]+after[2] != n || after[0] < first[0] || after[2] < first[2] {
			t.Errorf("after a queue was unbound: got %v, before: %v", after, first)
		}
	})
}

// A second binding of a queue does not change its weight.
func TestConsistentHashExchangeCountsAQueueOnce(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x, q1, q2 := c.exchange("x", "x-consistent-hash"), c.queue("q1", nil), c.queue("q2", nil)
		c.bind(q1, "1", x)
		c.bind(q2, "1", x)
		c.bind(q2, "1000", x)
		const n = 1000
		c.publishAll(x, n, func(i int) (string, amqp.Publishing) { return fmt.Sprint(i), amqp.Publishing{} })
		if got := c.counts(q1, q2); math.Abs(float64(got[0])-n/2) > 6*math.Sqrt(n/2) {
			t.Errorf("got %v, want an even distribution", got)
		}
	})
}

func TestConsistentHashExchangeHashesHeadersAndProperties(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		for label, test := range map[string]struct {
			args  amqp.Table
			value func(m *amqp.Publishing, i int)
		}{
			"header":         {amqp.Table{"hash-header": "id"}, func(m *amqp.Publishing, i int) { m.Headers = amqp.Table{"id": fmt.Sprint(i)} }},
			"x-header":       {amqp.Table{"hash-header": "x-id"}, func(m *amqp.Publishing, i int) { m.Headers = amqp.Table{"x-id": fmt.Sprint(i)} }},
			"integer":        {amqp.Table{"hash-header": "id"}, func(m *amqp.Publishing, i int) { m.Headers = amqp.Table{"id": int64(i)} }},
			"message id":     {amqp.Table{"hash-property": "message_id"}, func(m *amqp.Publishing, i int) { m.MessageId = fmt.Sprint(i) }},
			"correlation id": {amqp.Table{"hash-property": "correlation_id"}, func(m *amqp.Publishing, i int) { m.CorrelationId = fmt.Sprint(i) }},
		} {
			x, q1, q2 := c.exchangeWith("x "+label, "x-consistent-hash", test.args), c.queue("q1 "+label, nil), c.queue("q2 "+label, nil)
			c.bind(q1, "1", x)
			c.bind(q2, "1", x)
			publish := func(key string, different bool) []int {
				c.publishAll(x, 100, func(i int) (string, amqp.Publishing) {
					var m amqp.Publishing
					if different {
						test.value(&m, i)
					}
					return fmt.Sprint(key, i), m
				})
				return c.counts(q1, q2)
			}
			first := publish("a", true)
			if first[0] == 0 || first[1] == 0 {
				t.Errorf("%s: got %v, want messages in both queues", label, first)
			}
			if again := publish("b", true); !slices.Equal(again, first) {
				t.Errorf("%s: got %v for other routing keys, want %v", label, again, first)
			}
			if missing := publish("c", false); missing[0] != 0 && missing[1] != 0 {
				t.Errorf("%s: got %v without the value, want all messages in one queue", label, missing)
			}
		}
	})
}

func TestRandomExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x, q1, q2 := c.exchange("x", "x-random"), c.queue("q1", nil), c.queue("q2", amqp.Table{"x-queue-type": "quorum"})
		c.returned(x, "k")
		c.bind(q1, "any key", x)
		next := c.exchange("next", "fanout")
		c.bind(q2, "", next)
		c.must(c.ExchangeBind(next, "", x, false, nil))
		const n = 100 // the same destination for all of them has a probability of 2^-99
		c.publishAll(x, n, func(int) (string, amqp.Publishing) { return "k", amqp.Publishing{} })
		testkit.Eventually(t, timeout, func() error {
			if n1, n2 := c.ready(q1), c.ready(q2); n1 == 0 || n2 == 0 || n1+n2 != n {
				return fmt.Errorf("got %d and %d, want %d in both queues", n1, n2, n)
			}
			return nil
		})
	})
}

// took checks that a queue has exactly the given messages, and removes them. RabbitMQ delivers a history asynchronously.
func (c *client) took(what, queue string, want ...string) {
	c.t.Helper()
	var got []string
	for range want {
		d := c.get(queue)
		got = append(got, string(d.Body))
		c.must(d.Ack(false))
	}
	if n := c.ready(queue); n != 0 || !slices.Equal(got, want) {
		c.t.Errorf("%s: got %q and %d further messages, want %q", what, got, n, want)
	}
}

func TestRecentHistoryExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x := c.exchangeWith("x", "x-recent-history", amqp.Table{"x-recent-history-length": 3})
		c.returned(x, "k") // this message is part of the history, too
		early, late := c.queue("early", nil), c.queue("late", nil)
		c.bind(early, "any", x)
		c.took("queue bound after one message", early, "")
		for i := range 5 {
			c.publish(x, "k", amqp.Publishing{Body: fmt.Append(nil, i)})
		}
		c.publish(x, "k", amqp.Publishing{Body: []byte("not kept"), Headers: amqp.Table{"x-recent-history-no-store": true}})
		c.took("bound queue", early, "0", "1", "2", "3", "4", "not kept")
		c.bind(late, "any", x)
		c.took("queue bound later", late, "2", "3", "4")
		c.bind(late, "any", x) // exists
		c.bind(late, "other", x)
		c.took("second binding", late, "2", "3", "4")
		c.publish(x, "k", amqp.Publishing{Body: []byte("once")})
		c.took("queue with two bindings", late, "once")

		// The history reaches the queues of a bound exchange, in the opposite order.
		next, behind := c.exchange("next", "topic"), c.queue("behind", nil)
		c.bind(behind, "#", next)
		c.must(c.ExchangeBind(next, "", x, false, nil))
		c.took("queue of a bound exchange", behind, "once", "4", "3")
	})
}

func TestRecentHistoryLength(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		for _, value := range []any{0, -1, "5", 1.5, true} {
			shown := fmt.Sprint(value)
			if s, ok := value.(string); ok {
				shown = `<<"` + s + `">>`
			}
			c.refused(406, "Invalid argument "+shown+", 'x-recent-history-length' must be a positive integer", func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(testkit.Name(t, "x"), "x-recent-history", true, false, false, false,
					amqp.Table{"x-recent-history-length": value})
			})
		}
		x, q := c.exchange("x", "x-recent-history"), c.queue("q", nil)
		c.publishAll(x, 30, func(int) (string, amqp.Publishing) { return "k", amqp.Publishing{Expiration: "86400000"} })
		c.bind(q, "", x)
		testkit.Eventually(t, timeout, func() error {
			if got := c.ready(q); got != 20 {
				return fmt.Errorf("default length: got %d messages, want 20", got)
			}
			return nil
		})
	})
}
