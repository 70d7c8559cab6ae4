package vhosttest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The expectations follow the source of the plugin rabbitmq_delayed_message_exchange
// (https://github.com/rabbitmq/rabbitmq-delayed-message-exchange), except where docs/compatibility.md says otherwise.

// delayed returns a message to the exchange x with the header x-delay.
func delayed(t *testing.T, key, body string, delay any, properties amqpwire.Properties) *queue.Message {
	t.Helper()
	if delay != nil {
		properties.Headers = properties.Headers.Set("x-delay", delay)
		properties.Flags |= amqpwire.PropHeaders
	}
	encoded, err := properties.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := vhost.NewMessage(vhost.Published{Exchange: "x", RoutingKey: key, Properties: encoded, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (d *data) delays(rule string, durable bool) (*vhost.VHost, *vhost.Queue) {
	v := d.hosts["/"]
	if v == nil {
		v = d.add("/")
	}
	d.exchange(v, "x", "x-delayed-message", durable, amqpwire.Table{{Name: "x-delayed-type", Value: rule}})
	q := d.declare(v, "q", true, nil)
	d.must(v.Bind(toQueue("x", "q", "k.#", nil), nobody))
	return v, q
}

func (d *data) send(v *vhost.VHost, m *queue.Message) {
	d.t.Helper()
	if routed, accepted, err := v.Publish(m); routed != 1 || !accepted || err != nil {
		d.t.Errorf("publish: got %d queues, accepted %t, %v; want 1 queue", routed, accepted, err)
	}
}

func bodiesOf(q *vhost.Queue) string {
	var all []string
	for _, m := range q.Look() {
		all = append(all, string(m.Message.Body))
	}
	return strings.Join(all, " ")
}

func waiting(v *vhost.VHost) int {
	x, _ := v.Exchange("x")
	n, _ := x.Delayed()
	return n
}

func TestDelayedMessagesArriveWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openData(t)
		v, q := d.delays("topic", true)
		d.send(v, delayed(t, "k.1", "5s", int32(5000), amqpwire.Properties{}))
		d.send(v, delayed(t, "k.2", "1s", "1000", amqpwire.Properties{}))
		d.send(v, delayed(t, "k.3", "2s", float64(2000.9), amqpwire.Properties{}))
		for _, now := range []any{nil, int64(0), int32(-5), "x", true, int64(1) << 32, amqpwire.Timestamp(1000)} {
			d.send(v, delayed(t, "k", "now", now, amqpwire.Properties{}))
		}
		d.send(v, delayed(t, "other", "unroutable", int32(100), amqpwire.Properties{}))
		if got, want := bodiesOf(q), "now now now now now now now"; got != want || waiting(v) != 4 {
			t.Errorf("at once: got %q and %d waiting messages, want %q and 4", got, waiting(v), want)
		}
		q.Purge()
		for second, want := range []string{"", "1s", "1s 2s", "1s 2s", "1s 2s", "1s 2s 5s"} {
			synctest.Wait()
			if got := bodiesOf(q); got != want {
				t.Errorf("after %d s: got %q, want %q", second, got, want)
			}
			time.Sleep(time.Second + time.Millisecond)
		}
		if waiting(v) != 0 {
			t.Errorf("got %d waiting messages, want 0", waiting(v))
		}
		var headers []any
		for _, m := range q.Look() {
			p, err := amqpwire.ParseProperties(m.Properties)
			d.must(err)
			value, _ := p.Headers.Get("x-delay")
			headers = append(headers, value)
		}
		if diff := cmp.Diff([]any{int64(-1000), int64(-2000), int64(-5000)}, headers); diff != "" {
			t.Error("x-delay of the arrived messages (-want +got):\n" + diff)
		}
	})
}

func TestDelayedMessagesSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openData(t)
		v, _ := d.delays("topic", true)
		short, long := delayed(t, "k", "short", int32(1000), amqpwire.Properties{}), delayed(t, "k", "long", int32(60_000),
			amqpwire.Properties{Flags: amqpwire.PropExpiration, Expiration: "500"})
		d.send(v, short) // transient messages survive, too
		d.send(v, long)
		d.restart()
		v = d.hosts["/"]
		if queues, messages, err := vhost.Survey(d.store); queues != 1 || messages != 2 || err != nil || waiting(v) != 2 {
			t.Errorf("after a restart: got %d queues with %d messages (%v), %d waiting, want 1 with 2", queues, messages, err, waiting(v))
		}
		q := v.FindQueue("q")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := bodiesOf(q); got != "short" || waiting(v) != 1 {
			t.Errorf("after 2 s: got %q, %d waiting", got, waiting(v))
		}
		q.Purge()
		time.Sleep(58*time.Second + time.Millisecond)
		synctest.Wait()
		if got := bodiesOf(q); got != "long" {
			t.Errorf("after 60 s: got %q", got)
		}
		time.Sleep(time.Second)
		if got := bodiesOf(q); got != "" {
			t.Errorf("after the expiration, which begins with the arrival: got %q", got)
		}
		d.restart()
		if waiting(d.hosts["/"]) != 0 {
			t.Error("an arrived message waits again after a restart")
		}
	})
}

func TestDeletedExchangeDropsDelayedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openData(t)
		v, _ := d.delays("direct", true)
		d.send(v, delayed(t, "k.#", "lost", int32(1000), amqpwire.Properties{}))
		d.must(v.DeleteExchange("x", false))
		_, q := d.delays("direct", true)
		d.restart()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if queues, messages, err := vhost.Survey(d.store); messages != 0 || queues != 1 || err != nil {
			t.Errorf("got %d messages in %d queues (%v), want no messages", messages, queues, err)
		}
		if got := bodiesOf(q); got != "" {
			t.Errorf("got %q, want no messages", got)
		}
	})
}

// A full queue receives the message later, because the broker has confirmed the message.
func TestDelayedMessageWaitsForFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openData(t)
		v := d.add("/")
		d.exchange(v, "x", "x-delayed-message", true, amqpwire.Table{{Name: "x-delayed-type", Value: "fanout"}})
		q := d.declare(v, "full", true, amqpwire.Table{{Name: "x-max-length", Value: int32(1)}, {Name: "x-overflow", Value: "reject-publish"}})
		d.must(v.Bind(toQueue("x", "full", "", nil), nobody))
		d.send(v, delayed(t, "", "first", nil, amqpwire.Properties{}))
		d.send(v, delayed(t, "", "second", int32(1000), amqpwire.Properties{}))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bodiesOf(q); got != "first" || waiting(v) != 1 {
			t.Errorf("full queue: got %q, %d waiting", got, waiting(v))
		}
		q.Purge()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := bodiesOf(q); got != "second" || waiting(v) != 0 {
			t.Errorf("queue with room: got %q, %d waiting", got, waiting(v))
		}
	})
}

func TestDelayedExchangeRefusesInvalidTypes(t *testing.T) {
	d := openData(t)
	v := d.add("/")
	for want, args := range map[string]amqpwire.Table{
		"'x-delayed-type' must be an existing exchange type":     nil,
		"'x-delayed-message' can't be used for 'x-delayed-type'": {{Name: "x-delayed-type", Value: "x-delayed-message"}},
		"unknown exchange type 'fan'":                            {{Name: "x-delayed-type", Value: "fan"}},
		"'x-recent-history-length' must be a positive integer":   {{Name: "x-delayed-type", Value: "x-recent-history"}, {Name: "x-recent-history-length", Value: int32(0)}},
	} {
		err := v.DeclareExchange(&amqpwire.ExchangeDeclare{Exchange: "x", Type: "x-delayed-message", Arguments: args})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
