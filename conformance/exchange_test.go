package conformance

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestHeadersExchange(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		x := c.exchange("x", "headers")
		message := amqp.Table{"a": int32(1), "s": "one", "x-b": "yes", "t": true, "f": float32(1.5), "at": time.Unix(5, 0), "none": amqp.Table{}}
		for name, test := range map[string]struct {
			args    amqp.Table
			matches bool
		}{
			"all, by default":          {amqp.Table{"a": int32(1), "s": "one"}, true},
			"all but one":              {amqp.Table{"a": int32(1), "s": "two"}, false},
			"missing header":           {amqp.Table{"x-match": "all", "a": int32(1), "z": "one"}, false},
			"any":                      {amqp.Table{"x-match": "any", "a": int32(2), "s": "one"}, true},
			"not any":                  {amqp.Table{"x-match": "any", "a": int32(2), "s": "two"}, false},
			"all without arguments":    {amqp.Table{"x-match": "all"}, true},
			"any without arguments":    {amqp.Table{"x-match": "any"}, false},
			"all ignores x-":           {amqp.Table{"x-match": "all", "x-b": "no", "a": int32(1)}, true},
			"any ignores x-":           {amqp.Table{"x-match": "any", "x-b": "yes"}, false},
			"all with x-":              {amqp.Table{"x-match": "all-with-x", "x-b": "no", "a": int32(1)}, false},
			"any with x-":              {amqp.Table{"x-match": "any-with-x", "x-b": "yes"}, true},
			"a wider integer":          {amqp.Table{"a": int64(1)}, true},
			"a number in a string":     {amqp.Table{"a": "1"}, false},
			"no value, present":        {amqp.Table{"s": nil}, true},
			"no value, absent":         {amqp.Table{"z": nil}, false},
			"a boolean":                {amqp.Table{"t": true}, true},
			"a wider fraction":         {amqp.Table{"f": 1.5}, true},
			"bytes for text":           {amqp.Table{"s": []byte("one")}, true},
			"a timestamp for a number": {amqp.Table{"a": time.Unix(1, 0)}, true},
			// RabbitMQ 4 converts the timestamps of messages to milliseconds.
			"milliseconds for a time":   {amqp.Table{"at": int64(5000)}, b.Version != "3.10"},
			"seconds for a time":        {amqp.Table{"at": int64(5)}, b.Version == "3.10"},
			"the same time":             {amqp.Table{"at": time.Unix(5, 0)}, b.Version == "3.10"},
			"a thousand times the time": {amqp.Table{"at": time.Unix(5000, 0)}, b.Version != "3.10"},
			"an array for a table":      {amqp.Table{"none": []any{}}, true},
			"a text for a table":        {amqp.Table{"none": ""}, false},
		} {
			q := c.queue("q", nil)
			if test.args["x-match"] == "all-with-x" || test.args["x-match"] == "any-with-x" {
				if b.Version == "3.10" {
					if err := c.open().QueueBind(q, "", x, false, test.args); err != nil {
						continue // 3.10 does not support these values
					}
				}
			}
			c.must(c.QueueBind(q, "", x, false, test.args))
			c.publish(x, "any key", amqp.Publishing{Headers: message})
			if got := c.ready(q) == 1; got != test.matches {
				t.Errorf("%s: got match %v, want %v", name, got, test.matches)
			}
			c.must(c.QueueUnbind(q, "", x, test.args))
		}
		q := c.queue("q", nil)
		if b.Version == "4.3" {
			for text, match := range map[string]any{
				`Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x`:             "bogus",
				`Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x`:                    "",
				"Invalid x-match field type void (value undefined); expected longstr":                               nil,
				"Invalid x-match field type bool (value true); expected longstr":                                    true,
				`Invalid x-match field type binary (value <<"all">>); expected longstr`:                             []byte("all"),
				"Invalid x-match field type array (value [{longstr,<<\"a\">>},{void,undefined}]); expected longstr": []any{"a", nil},
			} {
				c.refused(406, text, func(ch *amqp.Channel) error { return ch.QueueBind(q, "", x, false, amqp.Table{"x-match": match}) })
			}
		}
	})
}

// An exchange routes unroutable messages to its alternate exchange. The deliveries contain the original exchange and
// routing key, and the messages count as routed.
func TestAlternateExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		alternate := c.exchange("alternate", "fanout")
		x, q, matched := testkit.Name(t, "x"), c.queue("q", nil), c.queue("matched", nil)
		c.must(c.ExchangeDeclare(x, "direct", true, false, false, false, amqp.Table{"alternate-exchange": alternate}))
		c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(x, false, false) })
		c.bind(matched, "known", x)

		returned := c.NotifyReturn(make(chan amqp.Return, 1))
		confirm, err := c.PublishWithDeferredConfirm(x, "key", true, false, amqp.Publishing{Body: []byte("nowhere yet")})
		c.must(err)
		confirm.Wait()
		if r := <-returned; string(r.Body) != "nowhere yet" {
			t.Errorf("returned message: got %q, want the unroutable message", r.Body)
		}
		c.bind(q, "", alternate)
		confirm, err = c.PublishWithDeferredConfirm(x, "key", true, false, amqp.Publishing{Body: []byte("x")})
		c.must(err)
		confirm.Wait()
		c.publish(x, "known", amqp.Publishing{})
		if d := c.get(q); string(d.Body) != "x" || d.Exchange != x || d.RoutingKey != "key" {
			t.Errorf("message: got %q from %q %q, want \"x\" from %q \"key\"", d.Body, d.Exchange, d.RoutingKey, x)
		}
		if n, m := c.ready(q), c.ready(matched); n != 0 || m != 1 {
			t.Errorf("ready: got %d and %d, want 0 and 1", n, m)
		}
		c.refused(406, "inequivalent arg 'alternate-exchange' for exchange '"+x+"' in vhost '/': received 'other' but current is '"+alternate+"'",
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare(x, "direct", true, false, false, false, amqp.Table{"alternate-exchange": "other"})
			})
	})
}

// The keys in the header BCC count also if the previous message had the same key and no headers.
func TestBCCAfterMessageWithoutHeaders(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q, copies := c.queue("q", nil), c.queue("copies", nil)
		c.put(q, "first")
		c.publish("", q, amqp.Publishing{Headers: amqp.Table{"BCC": []any{copies}}, Body: []byte("second")})
		c.put(q, "third")
		if got := c.bodies(copies, 1); got != "second" || c.ready(copies) != 0 || c.ready(q) != 3 {
			t.Errorf("copies: got %s and %d more, want second", got, c.ready(copies))
		}
	})
}

// Routing through a cycle of alternate exchanges terminates.
func TestAlternateExchangeCycle(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		x, y := testkit.Name(t, "x"), testkit.Name(t, "y")
		for name, alternate := range map[string]string{x: y, y: x} {
			c.must(c.ExchangeDeclare(name, "direct", true, false, false, false, amqp.Table{"alternate-exchange": alternate}))
			c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(name, false, false) })
		}
		returned := c.NotifyReturn(make(chan amqp.Return, 1))
		confirm, err := c.PublishWithDeferredConfirm(x, "key", true, false, amqp.Publishing{})
		c.must(err)
		confirm.Wait()
		<-returned
	})
}

// An unroutable dead letter is also routed to the alternate exchange.
func TestAlternateOfDeadLetterExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		alternate, q := c.exchange("alternate", "fanout"), c.queue("q", nil)
		c.bind(q, "", alternate)
		dlx := testkit.Name(t, "dlx")
		c.must(c.ExchangeDeclare(dlx, "direct", true, false, false, false, amqp.Table{"alternate-exchange": alternate}))
		c.cleanup(func(ch *amqp.Channel) { _ = ch.ExchangeDelete(dlx, false, false) })
		source := c.queue("source", amqp.Table{"x-dead-letter-exchange": dlx, "x-message-ttl": 1})
		c.put(source, "x")
		if got := c.bodies(q, 1); got != "x" {
			t.Errorf("message: got %s, want x", got)
		}
	})
}

// A binding key of a topic exchange has at most two "#".
func TestTopicKeyWildcards(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		if b.Version == "3.10" {
			return // 3.10 has no limit
		}
		q, from, to := c.queue("q", nil), c.exchange("from", "topic"), c.exchange("to", "fanout")
		for _, key := range []string{"#.#", "#.a.#", "##.#.#", "#.*.*.#.a"} {
			c.bind(q, key, from)
		}
		for key, n := range map[string]int{"#.#.#": 3, "#.a.#.b.#": 3, "#.#.#.#": 4} {
			text := fmt.Sprintf("Topic binding key '%s' uses %d '#' wildcards, at most 2 are allowed", key, n)
			c.refused(406, text, func(ch *amqp.Channel) error { return ch.QueueBind(q, key, from, false, nil) })
			c.refused(406, text, func(ch *amqp.Channel) error { return ch.ExchangeBind(to, key, from, false, nil) })
			c.must(c.QueueUnbind(q, key, from, nil))
			c.bind(q, key, "amq.direct") // the limit applies to topic exchanges only
			c.must(c.QueueUnbind(q, key, "amq.direct", nil))
		}
	})
}
