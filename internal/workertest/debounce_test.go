package workertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestDebounceHandlesNewestMessageOfBurst(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		clock := newClock()
		h := newScript(func(m *reprise.Delivery) error {
			clock.tick()
			return nil
		})
		events := &events{}
		c := dial(func(c *reprise.Config) { c.Observer = events })
		stop := start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Debounce: &reprise.Debounce{Window: 10 * time.Second, Key: reprise.ContentKey}})
		publish := func(ids ...string) {
			for _, id := range ids {
				r.publish("", "work", amqp.Publishing{MessageId: id, Body: []byte(id[:1])})
			}
		}
		publish("a1", "b1", "a2")
		time.Sleep(4 * time.Second)
		publish("a3")
		time.Sleep(7 * time.Second)
		publish("a4")
		time.Sleep(time.Minute)

		var ids []string
		for _, m := range h.wait(t, 3) {
			ids = append(ids, m.MessageID)
		}
		if h.count() != 3 || !(cmp.Equal(ids, []string{"a3", "b1", "a4"}) || cmp.Equal(ids, []string{"b1", "a3", "a4"})) {
			t.Errorf("handled messages: got %v, want a3 and b1 in any order, then a4", ids)
		}
		for i, want := range []time.Duration{10 * time.Second, 10 * time.Second, 21 * time.Second} {
			if at := clock.ticks()[i]; at < want || at > want+time.Second {
				t.Errorf("start of message %s: got %s, want %s to %s", ids[i], at, want, want+time.Second)
			}
		}
		if n := len(events.of(reprise.EventDebounced)); n != 2 {
			t.Errorf("got %d debounced messages, want 2", n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if n := r.depth("work"); n != 0 {
			t.Errorf("queue has %d messages, want 0", n)
		}
	})
}

// The worker settles the messages of a burst only when it settles the handled message.
func TestBurstIsSettledTogether(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		result          error
		retries, parked int
	}{
		{name: "success"},
		{name: "retry", result: errScripted, retries: 1},
		{name: "park", result: reprise.Park(errScripted), parked: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				h := newScript(func(m *reprise.Delivery) error { return tc.result })
				c := dial()
				stop := start(t, c, reprise.WorkerConfig{
					Queue: "work", Handler: h, Debounce: &reprise.Debounce{Window: time.Minute, Key: reprise.ContentKey},
					Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
				})
				for i := range 5 {
					r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(i)})
				}
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if n := h.count(); n != 1 {
					t.Errorf("burst was handled %d times, want 1", n)
				}
				if n := r.depth("work"); n != 0 {
					t.Errorf("queue has %d messages, want 0", n)
				}
				if n := r.depth("work.failed"); n != tc.parked {
					t.Errorf("parked messages: got %d, want %d", n, tc.parked)
				}
				if n := c.log.count("retry"); n != tc.retries {
					t.Errorf("retries: got %d, want %d", n, tc.retries)
				}
			})
		})
	}
}

// If the worker stops or its connection is lost during the debounce window, all messages of the burst are redelivered.
func TestInterruptedBurstIsRedelivered(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		h := newScript(func(m *reprise.Delivery) error { return nil })
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: strategy,
			Debounce: &reprise.Debounce{Window: 10 * time.Minute, Key: func(*reprise.Delivery) string { return "all" }},
		})
		for i := range 5 {
			r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		delivered := func() error {
			if n := r.depth(queue); n != 0 {
				return fmt.Errorf("%d messages were not delivered", n)
			}
			return nil
		}
		testkit.Eventually(t, timeout, delivered)
		proxy.Cut()
		c.log.wait(t, "consuming", 2)
		testkit.Eventually(t, timeout, delivered)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 5 })
		if n := h.count(); n != 0 {
			t.Errorf("messages handled before their debounce window expired: got %d, want 0", n)
		}
		for range 5 {
			r.take(queue)
		}
	})
}

func TestDebounceKeys(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error { return nil })
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Debounce: &reprise.Debounce{
			Window: time.Minute,
			Key: func(m *reprise.Delivery) string {
				if m.Type == "panic" {
					panic("key")
				}
				return m.Type
			},
		}})
		r.publish("", "work", amqp.Publishing{MessageId: "at once"})
		h.wait(t, 1)
		r.publish("", "work", amqp.Publishing{MessageId: "bad", Type: "panic"})
		c.log.wait(t, "parked", 1)
		if d := r.take("work.failed"); d.MessageId != "bad" {
			t.Errorf("parked message: got %q, want bad", d.MessageId)
		}
	})
}

// ContentKey depends on the body, the type, the reply address, the correlation ID, the exchange and the routing key of a
// message, but not on the message ID.
func TestContentKey(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		if err := c.Declare(context.Background(), topology.Topology{
			Queues:   []topology.Queue{{Name: "work"}},
			Bindings: []topology.Binding{{Exchange: "amq.topic", Queue: "work", RoutingKey: "#"}},
		}); err != nil {
			t.Fatal(err)
		}
		h := newScript(func(m *reprise.Delivery) error { return nil })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Debounce: &reprise.Debounce{Window: time.Minute, Key: reprise.ContentKey}})
		different := []func(m *amqp.Publishing) (exchange, key string){
			func(m *amqp.Publishing) (string, string) { return "", "work" },
			func(m *amqp.Publishing) (string, string) { return "amq.topic", "work" },
			func(m *amqp.Publishing) (string, string) { return "amq.topic", "wor" },
			func(m *amqp.Publishing) (string, string) { m.Type = "k"; return "amq.topic", "wor" },
			func(m *amqp.Publishing) (string, string) { m.Body = []byte("k"); return "amq.topic", "wor" },
			func(m *amqp.Publishing) (string, string) { m.Body = []byte("other"); return "", "work" },
			func(m *amqp.Publishing) (string, string) { m.CorrelationId = "k"; return "", "work" },
			func(m *amqp.Publishing) (string, string) { m.ReplyTo = "k"; return "", "work" },
		}
		for round := range 3 {
			for _, f := range different {
				m := amqp.Publishing{MessageId: fmt.Sprint(round)}
				exchange, key := f(&m)
				r.publish(exchange, key, m)
			}
		}
		time.Sleep(2 * time.Minute)
		if n := h.count(); n != len(different) {
			t.Errorf("%d messages were handled, want %d", n, len(different))
		}
	})
}
