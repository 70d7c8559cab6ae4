package workertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// With any route, the worker counts the attempts of a failed message. When the retries are exhausted, the worker parks the
// message with its properties.
func TestRoutesCountAttemptsAndPark(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name     string
		strategy topology.Strategy
		order    reprise.Order
		queues   func(queue string) []string
	}{
		{
			name: "publish then ack", strategy: topology.Strategy{Route: topology.Buckets{}},
			queues: func(q string) []string { return []string{q + ".wait.0-1000"} },
		},
		{
			name: "ack then publish", strategy: topology.Strategy{Route: topology.Buckets{}}, order: reprise.AckThenPublish,
			queues: func(q string) []string { return []string{q + ".wait.0-1000"} },
		},
		{name: "requeue", strategy: topology.Strategy{Route: topology.Requeuing{}}},
		{
			name: "dead-letter", strategy: topology.Strategy{Route: topology.DeadLettering{Delay: 20 * time.Millisecond}},
			queues: func(q string) []string { return []string{q + ".retry"} },
		},
		{
			name: "message ttl", strategy: topology.Strategy{Route: topology.MessageTTL{}},
			queues: func(q string) []string { return []string{q + ".wait"} },
		},
	} {
		t.Run(way.name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r := newRaw(t, b.URL)
				queue := testkit.Name(t, "work")
				r.deleteQueues(queue, queue+".failed")
				if way.queues != nil {
					r.deleteQueues(way.queues(queue)...)
				}
				h := newScript(func(m *reprise.Delivery) error { return fmt.Errorf("error %d", m.Attempt) })
				c := dial(t, b.URL)
				start(t, c, reprise.WorkerConfig{
					Queue: queue, Handler: h, Strategy: way.strategy, Order: way.order, Policy: quick(3),
				})
				msg := everything()
				r.publish("", queue, msg)
				parked := r.take(queue + ".failed")
				for i, m := range h.wait(t, 3) {
					if m.Attempt != i+1 || m.MessageID != msg.MessageId || m.RoutingKey != queue || m.Exchange != "" {
						t.Errorf("run %d: got attempt %d of message %q, exchange %q, routing key %q; want message %q, default exchange, key %q", i+1, m.Attempt, m.MessageID, m.Exchange, m.RoutingKey, msg.MessageId, queue)
					}
				}
				if n := h.count(); n != 3 {
					t.Errorf("got %d attempts, want 3", n)
				}
				if n, _ := amqpvalue.Integer(parked.Headers[topology.HeaderAttempts]); n != 3 || parked.Type != msg.Type || string(parked.Body) != string(msg.Body) {
					t.Errorf("parked message: got %d attempts, type %q, body %q; want 3, %q, %q", n, parked.Type, parked.Body, msg.Type, msg.Body)
				}
				if n := r.depth(queue); n != 0 {
					t.Errorf("queue has %d messages, want 0", n)
				}
			})
		})
	}
}

// If the broker would ignore the arguments of the route, Run returns a DeclareError.
func TestDelayedRetryRequiresBrokerSupport(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue := testkit.Name(t, "work")
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt < 3 {
				return errScripted
			}
			return nil
		})
		cfg := reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: topology.Strategy{Route: topology.DelayedRetry{Min: 50 * time.Millisecond, Max: time.Second}}}
		c := dial(t, b.URL)
		if b.Name == "rabbitmq-3.10" {
			w, err := reprise.NewWorker(c.Client, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := errors.AsType[*reprise.DeclareError](w.Run(t.Context())); !ok {
				t.Error("Run did not return DeclareError")
			}
			return
		}
		r.deleteQueues(queue, queue+".failed")
		start(t, c, cfg)
		r.publish("", queue, amqp.Publishing{MessageId: "id"})
		for i, m := range h.wait(t, 3) {
			if m.Attempt != i+1 {
				t.Errorf("attempt in run %[1]d: got %[2]d, want %[1]d", i+1, m.Attempt)
			}
		}
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 0 })
	})
}

// The next attempt and the parked message have the annotations that a handler adds to its error. A handler cannot set
// reserved annotations.
func TestCopyKeepsAnnotations(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error {
			step, _ := amqpvalue.Integer(m.Headers["step"])
			notes := map[string]any{
				"step": step + 1, "kept": "new", "nested": map[string]any{"k": []any{1, "two"}},
				"x-reprise-attempts": 99, "x-reprise-cc": "bad", "x-death": "bad", "CC": []any{"elsewhere"}, "x-delivery-count": 7,
			}
			return fmt.Errorf("wrapped: %w", reprise.Annotate(fmt.Errorf("outer: %w", reprise.Annotate(errScripted, map[string]any{"step": "inner", "inner": true})), notes))
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(3)})
		r.publish("", queue, amqp.Publishing{MessageId: "id", Headers: amqp.Table{"kept": "old", "untouched": "yes"}})
		d := r.take(queue + ".failed")
		for i, m := range h.wait(t, 3)[1:] {
			want := map[string]any{"step": int64(i + 1), "kept": "new", "untouched": "yes", "inner": true, "nested": topology.Table{"k": []any{int64(1), "two"}}}
			if diff := cmp.Diff(want, m.Headers); diff != "" {
				t.Errorf("attempt %d: -want +got:\n%s", m.Attempt, diff)
			}
		}
		if n, _ := amqpvalue.Integer(d.Headers["step"]); n != 3 {
			t.Errorf("parked message: got step %v, want 3", d.Headers["step"])
		}
		if n, _ := amqpvalue.Integer(d.Headers[topology.HeaderAttempts]); n != 3 {
			t.Errorf("parked message: got %d attempts, want 3", n)
		}
	})
}

// Annotations that are too large, or whose types AMQP does not support, do not prevent the retry.
func TestWorkerOmitsInvalidAnnotations(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error {
			switch m.Attempt {
			case 1:
				return reprise.Annotate(errScripted, map[string]any{"bad": struct{}{}, "good": 1})
			case 2:
				return reprise.Annotate(errScripted, map[string]any{"huge": make([]byte, 200_000)})
			}
			return nil
		})
		start(t, dial(), reprise.WorkerConfig{Queue: "work", Handler: h})
		r.publish("", "work", amqp.Publishing{MessageId: "id"})
		time.Sleep(time.Minute)
		seen := h.wait(t, 3)
		if len(seen[2].Headers) != 0 || len(seen[2].Errors) != 2 {
			t.Errorf("third attempt: got headers %v, errors %v; want no headers and 2 errors", seen[2].Headers, seen[2].Errors)
		}
	})
}

// The limit applies to the size of annotations on the wire, regardless of their Go types.
func TestWorkerOmitsLargeAnnotationsOfAnyType(t *testing.T) {
	t.Parallel()
	large := make([]byte, 200_000)
	for name, notes := range map[string]map[string]any{
		"a map":                    {"huge": map[string]any{"x": large}},
		"a Table":                  {"huge": topology.Table{"x": large}},
		"table of the AMQP client": {"huge": amqp.Table{"x": large}},
		"an array":                 {"huge": []any{map[string]any{"x": large}}},
		"many ints":                {"huge": slices.Repeat([]any{1}, 20_000)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				h := newScript(func(m *reprise.Delivery) error { return reprise.Annotate(errScripted, notes) })
				c := dial()
				start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Policy: reprise.Policy{MaxAttempts: 2}})
				r.publish("", "work", amqp.Publishing{MessageId: "id"})
				time.Sleep(time.Minute)
				if h.count() != 2 || r.depth("work.failed") != 1 {
					t.Errorf("got %d attempts and %d parked messages, want 2 and 1", h.count(), r.depth("work.failed"))
				}
				if n := c.log.count("copy failed"); n != 0 {
					t.Errorf("failed copies: got %d, want 0", n)
				}
			})
		})
	}
}

// routeWithoutDestination is a Route whose hops have an invalid routing key.
type routeWithoutDestination struct{ topology.Buckets }

func (routeWithoutDestination) Wait(topology.Delivery, time.Duration) (topology.Hop, error) {
	return topology.Hop{RoutingKey: strings.Repeat("x", 256)}, nil
}

// A copy that no broker accepts does not cause endless retries. The message is parked unchanged.
func TestWorkerParksMessageWithInvalidCopyUnchanged(t *testing.T) {
	t.Parallel()
	for _, order := range []reprise.Order{reprise.PublishThenAck, reprise.AckThenPublish} {
		bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
			h := newScript(func(m *reprise.Delivery) error { return errScripted })
			events := &events{}
			c := dial(func(c *reprise.Config) { c.Observer = events })
			start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Order: order, Strategy: topology.Strategy{Route: routeWithoutDestination{}}})
			r.publish("", "work", amqp.Publishing{MessageId: "id"})
			time.Sleep(2 * time.Hour)
			if h.count() != 1 || r.depth("work.failed") != 1 || r.depth("work") != 0 {
				t.Errorf("got %d attempts and %d parked messages, want 1 and 1, and an empty queue", h.count(), r.depth("work.failed"))
			}
			if parked := events.of(reprise.EventParked); len(parked) != 1 || !strings.Contains(parked[0].Err.Error(), "at most 255") {
				t.Errorf("events: got %v, want one parked message because of at most 255", parked)
			}
		})
	}
}
