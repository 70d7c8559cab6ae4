package conformance

import (
	"maps"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

// rejected declares a queue that dead-letters to another queue. It publishes m to the first queue, rejects the message,
// and returns the dead letter in the second queue.
func (c *client) rejected(m amqp.Publishing, args amqp.Table) (d amqp.Delivery, from, to string) {
	c.t.Helper()
	to = c.queue("dead", nil)
	all := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
	maps.Copy(all, args)
	from = c.queue("source", all)
	c.publish("", from, m)
	c.must(c.get(from).Reject(false))
	return c.get(to), from, to
}

func deaths(t *testing.T, d amqp.Delivery) []amqp.Table {
	t.Helper()
	entries, ok := d.Headers["x-death"].([]any)
	if !ok {
		t.Fatalf("x-death: got %T, want an array", d.Headers["x-death"])
	}
	var tables []amqp.Table
	for _, e := range entries {
		tables = append(tables, e.(amqp.Table))
	}
	return tables
}

func TestDeathHeaders(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		d, from, to := c.rejected(amqp.Publishing{Body: []byte("x")}, nil)
		entry := deaths(t, d)[0]
		if age := time.Since(entry["time"].(time.Time)); age < -time.Minute || age > time.Minute {
			t.Errorf("time: got %v, want now", entry["time"])
		}
		delete(entry, "time")
		want := amqp.Table{
			"count": int64(1), "reason": "rejected", "queue": from, "exchange": "", "routing-keys": []any{from},
		}
		if !reflect.DeepEqual(entry, want) {
			t.Errorf("entry: got  %v\n       want %v", entry, want)
		}
		for header, value := range map[string]any{
			"x-first-death-reason": "rejected", "x-first-death-queue": from, "x-first-death-exchange": "",
		} {
			if d.Headers[header] != value {
				t.Errorf("%s: got %v, want %v", header, d.Headers[header], value)
			}
		}
		if last, has := d.Headers["x-last-death-queue"]; has != (b.Version != "3.10") || has && last != from {
			t.Errorf("x-last-death-queue: got %v (present: %v) with version %s, want %s from 3.13 on", last, has, b.Version, from)
		}
		if d.Exchange != "" || d.RoutingKey != to {
			t.Errorf("delivery from %q %q, want the dead-letter exchange and key", d.Exchange, d.RoutingKey)
		}
	})
}

// There is one entry for each combination of queue and reason. Each further death increments the count of its entry and
// moves the entry to the front. The other fields of an entry describe its first death.
func TestDeathsAreCountedByQueueAndReason(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		work, wait := testkit.Name(t, "work"), testkit.Name(t, "wait")
		c.declare(wait, amqp.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
		c.declare(work, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
		c.put(work, "x")
		for range 3 {
			c.must(c.get(work).Reject(false))
		}
		d := c.get(work)
		entries := deaths(t, d)
		if len(entries) != 2 {
			t.Fatalf("entries: got %d, want 2: %v", len(entries), entries)
		}
		for i, want := range []amqp.Table{
			{"queue": wait, "reason": "expired", "count": int64(3), "routing-keys": []any{wait}},
			{"queue": work, "reason": "rejected", "count": int64(3), "routing-keys": []any{work}},
		} {
			for k, v := range want {
				if !reflect.DeepEqual(entries[i][k], v) {
					t.Errorf("entry %d: %s: got %v, want %v", i, k, entries[i][k], v)
				}
			}
		}
		if d.Headers["x-first-death-queue"] != work || d.Headers["x-first-death-reason"] != "rejected" {
			t.Errorf("headers of the first death: got %v, want queue %s and reason rejected", d.Headers, work)
		}
	})
}

func TestDeathEntryPreservesExpiration(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		d, _, _ := c.rejected(amqp.Publishing{Expiration: "60000"}, nil)
		if entry := deaths(t, d)[0]; d.Expiration != "" || entry["original-expiration"] != "60000" {
			t.Errorf("expiration: got %q, entry %v, want \"\" and original-expiration 60000", d.Expiration, entry)
		}
		d, _, _ = c.rejected(amqp.Publishing{}, amqp.Table{"x-message-ttl": 60000})
		if _, has := deaths(t, d)[0]["original-expiration"]; has {
			t.Error("original-expiration contains the TTL of the queue")
		}
	})
}

func TestDeadLetterPreservesProperties(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		sent := amqp.Publishing{
			ContentType: "text/plain", ContentEncoding: "utf-8", DeliveryMode: amqp.Persistent, Priority: 7,
			CorrelationId: "corr", ReplyTo: "reply", MessageId: "id", Timestamp: time.Unix(1700000000, 0), Type: "type",
			UserId: "guest", AppId: "app", Body: []byte{0, 1, 254, 255},
			Headers: amqp.Table{
				"int8": int8(-8), "uint8": uint8(8), "int16": int16(-16), "int32": int32(-32), "int64": int64(-64),
				"float": float32(1.5), "double": 2.5, "bool": true, "string": "s", "bytes": []byte{1, 2}, "nil": nil,
				"decimal": amqp.Decimal{Scale: 2, Value: 12345}, "time": time.Unix(1600000000, 0),
				"array": []any{int32(1), "two", amqp.Table{"three": int64(3)}}, "table": amqp.Table{"a": "b"},
			},
		}
		d, _, _ := c.rejected(sent, nil)
		got := amqp.Publishing{
			ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
			CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId, Timestamp: d.Timestamp.Local(), Type: d.Type,
			UserId: d.UserId, AppId: d.AppId, Body: d.Body, Headers: amqp.Table{},
		}
		for name := range sent.Headers {
			got.Headers[name] = d.Headers[name]
		}
		sent.Timestamp = sent.Timestamp.Local()
		got.Headers["time"] = got.Headers["time"].(time.Time).Local()
		if !reflect.DeepEqual(got, sent) {
			t.Errorf("got  %v\nsent %v", got, sent)
		}
	})
}

// RabbitMQ 3.10 continues the counts in an x-death header that a client has published. RabbitMQ 4.0 and later ignore
// such a header.
func TestDeathHeaderFromClient(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		first, from, to := c.rejected(amqp.Publishing{}, nil)
		c.publish("", from, amqp.Publishing{Headers: first.Headers})
		c.must(c.get(from).Reject(false))
		want := int64(1)
		if b.Version == "3.10" {
			want = 2
		}
		if got := deaths(t, c.get(to))[0]["count"]; got != want {
			t.Errorf("count: got %v, want %d", got, want)
		}
	})
}

// If the queue has no dead-letter routing key, the broker routes a dead letter by all its keys, including the BCC keys.
// The x-death entry contains all of these keys except the BCC keys.
func TestDeadLetterKeepsRoutingKeys(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		dlx := c.exchange("dlx", amqp.ExchangeDirect)
		source := c.queue("source", amqp.Table{"x-dead-letter-exchange": dlx})
		in := c.exchange("in", amqp.ExchangeFanout)
		c.bind(source, "", in)
		for _, key := range []string{"main", "cc", "bcc"} {
			c.bind(c.queue(key, nil), key, dlx)
		}
		all := c.queue("all", nil)
		for _, key := range []string{"main", "cc", "bcc"} {
			c.bind(all, key, dlx)
		}
		c.publish(in, "main", amqp.Publishing{Headers: amqp.Table{"CC": []any{"cc"}, "BCC": []any{"bcc"}}})
		original := c.get(source)
		if _, has := original.Headers["BCC"]; has {
			t.Error("delivery contains the BCC header")
		}
		c.must(original.Reject(false))
		d := c.get(all)
		if keys := deaths(t, d)[0]["routing-keys"]; !reflect.DeepEqual(keys, []any{"main", "cc"}) {
			t.Errorf("routing-keys: got %v, want main and cc", keys)
		}
		if d.RoutingKey != "main" || d.Exchange != dlx {
			t.Errorf("delivery from %q %q, want the dead-letter exchange and main", d.Exchange, d.RoutingKey)
		}
		c.awaitReady(all, 0) // there was one copy, although three keys match
	})
}

func TestDeadLetterKeyReplacesAllKeys(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		dlx := c.exchange("dlx", amqp.ExchangeDirect)
		source := c.queue("source", amqp.Table{"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "new"})
		fresh, old := c.queue("fresh", nil), c.queue("old", nil)
		c.bind(fresh, "new", dlx)
		c.bind(old, "cc", dlx)
		c.publish("", source, amqp.Publishing{Headers: amqp.Table{"CC": []any{"cc"}}})
		c.must(c.get(source).Reject(false))
		d := c.get(fresh)
		if _, has := d.Headers["CC"]; has != (b.Version != "3.10") {
			t.Errorf("CC header: got %v with version %s, want true except with 3.10", has, b.Version)
		}
		if n := c.ready(old); n != 0 {
			t.Errorf("dead letters routed by the CC key: got %d, want 0", n)
		}
	})
}

// The broker drops unroutable dead letters without a notification.
func TestBrokerDropsUnroutableDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		unrouted := c.exchange("dlx", amqp.ExchangeDirect)
		for _, dlx := range []string{testkit.Name(t, "missing"), unrouted} {
			source := c.queue("source", amqp.Table{"x-dead-letter-exchange": dlx})
			returned := c.NotifyReturn(make(chan amqp.Return, 1))
			confirm, err := c.PublishWithDeferredConfirm("", source, true, false, amqp.Publishing{})
			c.must(err)
			if !confirm.Wait() {
				t.Error("message was not confirmed")
			}
			c.must(c.get(source).Reject(false))
			if n := c.ready(source); n != 0 { // would fail if the broker had closed the channel
				t.Errorf("messages in the source queue: got %d, want 0", n)
			}
			select {
			case r := <-returned:
				t.Errorf("returned dead letters: got %v, want none", r)
			default:
			}
		}
	})
}

// The broker drops a message that completes a cycle of queues only by expiration. If a consumer has rejected the
// message in the cycle, the message can circulate indefinitely.
func TestDeadLetterCycles(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		self := c.queue("self", amqp.Table{"x-dead-letter-exchange": "", "x-message-ttl": 30})
		out := c.exchange("out", amqp.ExchangeFanout)
		name := testkit.Name(t, "two")
		c.declare(name, amqp.Table{"x-dead-letter-exchange": out, "x-message-ttl": 30})
		beside := c.queue("beside", nil)
		c.bind(name, "", out)
		c.bind(beside, "", out)

		c.put(self, "x")
		c.put(name, "x")
		// The broker does not route the message to the queue that completes the cycle, but does route it to the other
		// queue of the exchange.
		if d := c.get(beside); len(deaths(t, d)) != 1 {
			t.Errorf("x-death: got %v, want 1 entry", deaths(t, d))
		}
		c.awaitReady(self, 0)
		c.awaitReady(name, 0)

		again := c.queue("again", amqp.Table{"x-dead-letter-exchange": ""})
		c.put(again, "x")
		for round := int64(1); round <= 3; round++ {
			c.must(c.get(again).Reject(false))
		}
		if d := c.get(again); deaths(t, d)[0]["count"] != int64(3) {
			t.Errorf("x-death: got %v, want count 3", deaths(t, d))
		}
	})
}

func TestDeadLettersKeepOrder(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		dead := c.queue("dead", nil)
		args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
		source := c.queue("source", args)
		c.put(source, "1", "2", "3")
		c.get(source)
		c.get(source)
		c.must(c.get(source).Nack(true, false))
		if got := c.bodies(dead, 3); got != "1 2 3" {
			t.Errorf("order of rejected messages: got %s, want 1 2 3", got)
		}
		args["x-message-ttl"] = 20
		c.put(c.queue("expiring", args), "1", "2", "3")
		if got := c.bodies(dead, 3); got != "1 2 3" {
			t.Errorf("order of expired messages: got %s, want 1 2 3", got)
		}
	})
}

func TestPurgeAndDeleteDoNotDeadLetter(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		dead := c.queue("dead", nil)
		source := c.queue("source", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
		c.put(source, "1")
		if _, err := c.QueuePurge(source, false); err != nil {
			t.Fatal(err)
		}
		c.put(source, "2")
		if _, err := c.QueueDelete(source, false, false, false); err != nil {
			t.Fatal(err)
		}
		c.put(dead, "end")
		if got := c.bodies(dead, 1); got != "end" {
			t.Errorf("dead letter: got %s, want end", got)
		}
	})
}

func TestDeadLetterArguments(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := testkit.Name(t, "q")
		declare := func(args amqp.Table) func(*amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare(q, true, false, false, false, args)
				return err
			}
		}
		c.refused(406, "invalid arg 'x-dead-letter-routing-key' for queue '"+q+"' in vhost '/': routing_key_but_no_dlx_defined",
			declare(amqp.Table{"x-dead-letter-routing-key": "k"}))
		c.refused(406, "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '"+q+"' in vhost '/'",
			declare(amqp.Table{"x-dead-letter-exchange": int32(1)}))
	})
}

// If a queue has no dead-letter exchange, the broker drops rejected messages. It does not notify the publisher.
func TestRejectWithoutDeadLetterExchange(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		q := c.queue("q", nil)
		c.put(q, "1", "2")
		c.must(c.get(q).Reject(false))
		c.must(c.get(q).Nack(false, false))
		c.put(q, "3")
		if got := c.bodies(q, 1); got != "3" {
			t.Errorf("message after the rejected messages: got %s, want 3", got)
		}
	})
}

// The headers that describe the first death never change. RabbitMQ 3.13 introduced the headers that describe the last
// death.
func TestFirstAndLastDeath(t *testing.T) {
	each(t, func(t *testing.T, b testkit.Target, c *client) {
		x := c.exchange("x", amqp.ExchangeFanout)
		end := c.queue("end", nil)
		second := c.queue("second", amqp.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": end})
		c.bind(second, "", x)
		first := c.queue("first", amqp.Table{"x-dead-letter-exchange": x})
		c.put(first, "1")
		c.must(c.get(first).Reject(false))
		d := c.get(end)
		for header, want := range map[string]any{
			"x-first-death-queue": first, "x-first-death-reason": "rejected", "x-first-death-exchange": "",
			"x-last-death-queue": second, "x-last-death-reason": "expired", "x-last-death-exchange": x,
		} {
			if b.Version == "3.10" && header[:6] == "x-last" {
				want = nil
			}
			if d.Headers[header] != want {
				t.Errorf("%s: got %v, want %v", header, d.Headers[header], want)
			}
		}
	})
}

// The broker also detects a cycle if a consumer rejected the message before the message entered the cycle.
func TestDeadLetterCycleAfterRejection(t *testing.T) {
	each(t, func(t *testing.T, _ testkit.Target, c *client) {
		out := c.exchange("out", amqp.ExchangeFanout)
		circle := c.queue("circle", amqp.Table{"x-message-ttl": 20, "x-dead-letter-exchange": out})
		beside := c.queue("beside", nil)
		c.bind(circle, "", out)
		c.bind(beside, "", out)
		start := c.queue("start", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": circle})
		c.put(start, "1")
		c.must(c.get(start).Reject(false))
		if d := c.get(beside); len(deaths(t, d)) != 2 {
			t.Errorf("x-death: got %v, want 2 entries", deaths(t, d))
		}
		c.awaitReady(circle, 0)
		c.put(beside, "end")
		if got := c.bodies(beside, 1); got != "end" {
			t.Errorf("broker did not stop the cycle: got %s, want end", got)
		}
	})
}
