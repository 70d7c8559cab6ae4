package workertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// everything returns a message with all properties and all types of headers.
func everything() amqp.Publishing {
	return amqp.Publishing{
		ContentType:     "application/json",
		ContentEncoding: "identity",
		DeliveryMode:    amqp.Persistent,
		Priority:        3,
		CorrelationId:   "correlation",
		ReplyTo:         "reply.queue",
		MessageId:       "id-1",
		Timestamp:       time.Unix(1_700_000_000, 0),
		Type:            "payment",
		AppId:           "till",
		Body:            []byte("\x00body\xff"),
		Headers: amqp.Table{
			"bool":      true,
			"int8":      int8(-8),
			"uint8":     byte(8),
			"int16":     int16(-16),
			"uint16":    uint16(16),
			"int32":     int32(-32),
			"uint32":    uint32(32),
			"int64":     int64(-1 << 40),
			"float32":   float32(1.5),
			"float64":   2.25,
			"string":    "text",
			"bytes":     []byte{0, 1, 255},
			"time":      time.Unix(1_600_000_000, 0),
			"decimal":   amqp.Decimal{Scale: 2, Value: 1234},
			"void":      nil,
			"table":     amqp.Table{"nested": amqp.Table{"n": int16(1)}, "empty": amqp.Table{}},
			"array":     []any{int64(1), "two", amqp.Table{"three": byte(3)}, []any{nil}},
			"x-custom":  "kept",
			"x-reprise": "kept too",
		},
	}
}

// wire returns the properties, headers and body of a delivery. It removes the x-delivery-count of 0 that RabbitMQ 3.10 adds
// to messages that are fetched from a quorum queue.
func wire(d amqp.Delivery) amqp.Publishing {
	if d.Headers["x-delivery-count"] == int64(0) {
		delete(d.Headers, "x-delivery-count")
	}
	return amqp.Publishing{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId,
		Body: d.Body, Headers: d.Headers,
	}
}

func TestWorkerPreservesMessageInRetriesAndFailedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		exchange := testkit.Name(t, "topic")
		r.deleteExchanges(exchange)

		h := newScript(func(m *reprise.Delivery) error {
			// A handler may modify its message.
			clear(m.Body)
			m.Headers["table"].(topology.Table)["nested"] = "scribbled"
			m.Headers["bytes"].([]byte)[0] = 9
			err := fmt.Errorf("failure of attempt %d", m.Attempt)
			clear(m.Headers)
			return err
		})
		// The handler modifies the message, so this wrapper copies the message first.
		var first *reprise.Delivery
		look := reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			if m.Attempt == 2 {
				c := *m
				c.Body = append([]byte(nil), m.Body...)
				c.Headers = map[string]any{}
				maps.Copy(c.Headers, m.Headers)
				first = &c
			}
			return h.Handle(ctx, m)
		})
		began := time.Now().Truncate(time.Second)
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, Handler: look, Policy: quick(3), Strategy: strategy,
			Topology: topology.Topology{
				Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Topic}},
				Bindings:  []topology.Binding{{Exchange: exchange, Queue: queue, RoutingKey: "pay.#"}},
			},
		})
		sent := everything()
		r.publish(exchange, "pay.now", sent)

		seen := h.wait(t, 3)
		for i, m := range seen {
			if m.Attempt != i+1 || m.Exchange != exchange || m.RoutingKey != "pay.now" || m.Queue != queue || m.Redelivered {
				t.Errorf("attempt %d: got attempt %d, exchange %q, routing key %q, queue %q, redelivered %t; want %q, pay.now, %q, false", i+1, m.Attempt, m.Exchange, m.RoutingKey, m.Queue, m.Redelivered, exchange, queue)
			}
			if len(m.Errors) != i || m.FirstFailed.IsZero() != (i == 0) {
				t.Errorf("attempt %d: got %d errors, first failed %s; want %d errors, and a time after the first failure", i+1, len(m.Errors), m.FirstFailed, i)
			}
		}

		parked := r.take(queue + ".failed")
		if n := r.depth(queue); n != 0 {
			t.Errorf("work queue has %d messages, want 0", n)
		}
		headers := amqp.Table{}
		for k, v := range parked.Headers {
			if strings.HasPrefix(k, "x-reprise-") {
				headers[k] = v
				delete(parked.Headers, k)
			}
		}
		if diff := cmp.Diff(sent, wire(parked)); diff != "" {
			t.Errorf("parked message: -published +parked:\n%s", diff)
		}
		var texts []string
		errs, _ := headers["x-reprise-errors"].([]any)
		for i, e := range errs {
			entry, _ := e.(amqp.Table)
			text, _ := entry["error"].(string)
			texts = append(texts, text)
			at, _ := entry["time"].(time.Time)
			host, _ := entry["host"].(string)
			if _, ok := entry["duration-ms"].(int64); !ok || entry["attempt"] != int64(i+1) || at.Before(began) || host == "" || len(entry) != 5 {
				t.Errorf("error header %d: got %#v, want attempt, time, host, duration and error", i+1, entry)
			}
		}
		if diff := cmp.Diff([]string{"failure of attempt 1", "failure of attempt 2", "failure of attempt 3"}, texts); diff != "" {
			t.Errorf("recorded errors: -want +got:\n%s", diff)
		}
		delete(headers, "x-reprise-errors")
		if at, _ := headers["x-reprise-first-failed"].(time.Time); at.Before(began) {
			t.Errorf("first-failed header: got %v, want at least %s", headers["x-reprise-first-failed"], began)
		}
		delete(headers, "x-reprise-first-failed")
		want := amqp.Table{
			"x-reprise-attempts": int64(3), "x-reprise-exchange": exchange,
			"x-reprise-routing-key": "pay.now", "x-reprise-queue": queue, "x-reprise-reason": "3 attempts made",
		}
		if diff := cmp.Diff(want, headers); diff != "" {
			t.Errorf("bookkeeping headers: -want +got:\n%s", diff)
		}

		if string(first.Body) != string(sent.Body) || first.MessageID != "id-1" || first.CorrelationID != "correlation" ||
			first.Type != "payment" || first.Priority != 3 || !first.Timestamp.Equal(sent.Timestamp) {
			t.Errorf("second attempt: got %+v, want the published properties and body", first)
		}
		if diff := cmp.Diff(keys(sent.Headers), keys(first.Headers)); diff != "" {
			t.Errorf("headers of the second attempt: -published +seen:\n%s", diff)
		}
	})
}

func TestWorkerAcknowledgesSuccess(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		c := dial(t, b.URL)
		h := newScript(func(*reprise.Delivery) error { return nil })
		stop := start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Concurrency: 4})
		const n = 100
		for i := range n {
			r.publish("", queue, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		h.wait(t, n)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if d, f := r.depth(queue), r.depth(queue+".failed"); d != 0 || f != 0 {
			t.Errorf("work queue has %d messages and failed queue %d, want 0 and 0", d, f)
		}
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, tc := range []struct {
			name     string
			policy   reprise.Policy
			answer   func(m *reprise.Delivery) error
			attempts int
			text     string // last error on the parked message
		}{
			{
				name: "park", policy: quick(9), attempts: 1, text: "look: hopeless",
				answer: func(*reprise.Delivery) error {
					return fmt.Errorf("look: %w", reprise.Park(fmt.Errorf("hopeless")))
				},
			},
			{
				name: "retry after counts as an attempt", policy: reprise.Policy{MaxAttempts: 3}, attempts: 3, text: "busy: 507 queue is full",
				answer: func(*reprise.Delivery) error {
					return fmt.Errorf("busy: %w", reprise.RetryAfter(time.Millisecond, fmt.Errorf("507 queue is full")))
				},
			},
			{
				name: "retry after 0s", policy: reprise.Policy{MaxAttempts: 2}, attempts: 2, text: "retry after 0s",
				answer: func(*reprise.Delivery) error { return reprise.RetryAfter(0, nil) },
			},
			{
				name: "no retries", policy: quick(1), attempts: 1, text: "scripted failure",
				answer: func(*reprise.Delivery) error { return errScripted },
			},
			{
				name: "panic", policy: quick(2), attempts: 2, text: "panic: kaboom\n\ngithub.com/reprisemq/reprise/internal/workertest.", // the position of the panic comes first
				answer: func(*reprise.Delivery) error { panic("kaboom") },
			},
			{
				name: "panic of the runtime", policy: quick(1), attempts: 1,
				text:   "panic: runtime error: invalid memory address or nil pointer dereference\n\ngithub.com/reprisemq/reprise/internal/workertest.",
				answer: func(*reprise.Delivery) error { var m *reprise.Delivery; return errors.New(m.Queue) },
			},
			{
				name: "Goexit", policy: quick(2), attempts: 2, text: reprise.ErrHandlerExited.Error(),
				answer: func(*reprise.Delivery) error { runtime.Goexit(); return nil },
			},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{Base: 100 * time.Millisecond})
				h := newScript(tc.answer)
				start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: tc.policy})
				r.publish("", queue, amqp.Publishing{Body: []byte("x")})
				parked := r.take(queue + ".failed")
				if n := h.count(); n != tc.attempts {
					t.Errorf("got %d attempts, want %d", n, tc.attempts)
				}
				if got := parked.Headers["x-reprise-attempts"]; got != int64(tc.attempts) {
					t.Errorf("attempts header: got %#v, want %d", got, tc.attempts)
				}
				errs, _ := parked.Headers["x-reprise-errors"].([]any)
				last, _ := errs[len(errs)-1].(amqp.Table)
				text, _ := last["error"].(string)
				if !strings.HasPrefix(text, tc.text) {
					t.Errorf("last error: got %q, want %q", text, tc.text)
				}
				if tc.name == "panic" && !strings.Contains(text, "worker_test.go") {
					t.Errorf("error must contain a stack: got %q", text)
				}
				if parked.MessageId == "" {
					t.Error("parked message has no ID")
				}
				testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 0 })
			})
		}
	})
}

func TestRetryIsNeverEarly(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{Base: 100 * time.Millisecond})
		const delay = 700 * time.Millisecond
		var failed time.Time
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 1 {
				failed = time.Now()
				return reprise.RetryAfter(delay, errScripted)
			}
			if waited := time.Since(failed); waited < delay {
				t.Errorf("delay of the retry: got %s, want at least %s", waited, delay)
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{})
		h.wait(t, 2)
	})
}
