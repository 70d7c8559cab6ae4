package workertest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// coverArt prepares a broker for a test of the design p, and returns p. The queue names of the design are fixed. Therefore
// only one test at a time uses the names on a shared broker. coverArt deletes the queues and exchanges before and after the
// test.
func coverArt(t *testing.T, r *raw, p preset.CoverArt) preset.CoverArt {
	t.Helper()
	topo := p.Topology()
	for _, q := range topo.Queues {
		if _, err := r.QueueDelete(q.Name, false, false, false); err != nil {
			t.Fatal(err)
		}
		r.deleteQueues(q.Name)
	}
	for _, e := range topo.Exchanges {
		if err := r.ExchangeDelete(e.Name, false, false); err != nil {
			t.Fatal(err)
		}
		r.deleteExchanges(e.Name)
	}
	return p
}

func TestCoverArtDeclaresDeployedTopology(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		testkit.Alone(t, b, "cover-art-archive")
		for _, queueType := range []string{"", "quorum"} {
			t.Run("type "+queueType, func(t *testing.T) {
				r := newRaw(t, b.URL)
				p := coverArt(t, r, preset.CoverArt{QueueType: queueType})
				if err := dial(t, b.URL).Declare(t.Context(), p.Topology()); err != nil {
					t.Fatal(err)
				}
				// Declarations with the arguments that other programs of this design use are equivalent.
				with := func(args amqp.Table) amqp.Table {
					if queueType != "" {
						args["x-queue-type"] = queueType
					}
					if queueType == "quorum" {
						args["x-delivery-limit"] = int64(math.MaxInt32)
					}
					return args
				}
				for queue, args := range map[string]amqp.Table{
					"cover-art-archive.index":  {},
					"cover-art-archive.delete": {},
					"cover-art-archive.move":   {},
					"cover-art-archive.failed": {},
					"cover-art-archive.retry":  {"x-message-ttl": int32(14400000), "x-dead-letter-exchange": "cover-art-archive"},
				} {
					if _, err := r.QueueDeclare(queue, true, false, false, false, with(args)); err != nil {
						t.Error(err)
						r.reopen()
					}
				}
				for exchange, kind := range map[string]string{
					"cover-art-archive": "direct", "cover-art-archive.retry": "fanout", "cover-art-archive.failed": "fanout",
				} {
					if err := r.ExchangeDeclare(exchange, kind, true, false, false, false, nil); err != nil {
						t.Error(err)
						r.reopen()
					}
				}
				for _, to := range [][3]string{
					{"cover-art-archive", "index", "cover-art-archive.index"},
					{"cover-art-archive", "delete", "cover-art-archive.delete"},
					{"cover-art-archive", "move", "cover-art-archive.move"},
					{"cover-art-archive.retry", "anything", "cover-art-archive.retry"},
					{"cover-art-archive.failed", "anything", "cover-art-archive.failed"},
				} {
					r.publish(to[0], to[1], amqp.Publishing{Body: []byte(to[1])})
					if d := r.take(to[2]); string(d.Body) != to[1] || d.RoutingKey != to[1] {
						t.Errorf("bindings %v: got message %q with key %q, want %q", to, d.Body, d.RoutingKey, to[1])
					}
				}
			})
		}
	})
}

func TestCoverArtOnTheWire(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		testkit.Alone(t, b, "cover-art-archive")
		r := newRaw(t, b.URL)
		// The delay cannot be 0, so the test does not wait for it, but reads the copies from the wait queue.
		p := coverArt(t, r, preset.CoverArt{RetryDelay: time.Hour})
		h := newScript(func(m *reprise.Delivery) error { return fmt.Errorf("error of attempt %d", m.Attempt) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: "cover-art-archive.index", Handler: h, Strategy: p.Strategy(), Policy: quick(1)})

		type step struct {
			queue   string
			headers amqp.Table
		}
		for _, tc := range []struct {
			name  string
			first amqp.Table // headers of the published message
			steps []step     // destinations and headers of its copies, in order
		}{
			{"from the start", nil, []step{
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(3), "mb-exceptions": []any{"error of attempt 1"}}},
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(2), "mb-exceptions": []any{"error of attempt 1", "error of attempt 2"}}},
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(1), "mb-exceptions": []any{"error of attempt 1", "error of attempt 2", "error of attempt 3"}}},
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(0), "mb-exceptions": []any{"error of attempt 1", "error of attempt 2", "error of attempt 3", "error of attempt 4"}}},
				{"cover-art-archive.failed", amqp.Table{"mb-retries": int32(0), "mb-exceptions": []any{"error of attempt 1", "error of attempt 2", "error of attempt 3", "error of attempt 4", "error of attempt 5"}}},
			}},
			{"one byte", amqp.Table{"mb-retries": int8(1)}, []step{
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(0), "mb-exceptions": []any{"error of attempt 4"}}},
			}},
			{"eight bytes", amqp.Table{"mb-retries": int64(2), "mb-exceptions": []any{"theirs"}, "own": "kept"}, []step{
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(1), "mb-exceptions": []any{"theirs", "error of attempt 3"}, "own": "kept"}},
			}},
			{"more than the default", amqp.Table{"mb-retries": int16(9)}, []step{
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(8), "mb-exceptions": []any{"error of attempt 1"}}},
			}},
			{"exhausted", amqp.Table{"mb-retries": uint16(0)}, []step{
				{"cover-art-archive.failed", amqp.Table{"mb-retries": uint16(0), "mb-exceptions": []any{"error of attempt 5"}}},
			}},
			{"negative", amqp.Table{"mb-retries": int64(math.MinInt64)}, []step{
				{"cover-art-archive.failed", amqp.Table{"mb-retries": int64(math.MinInt64), "mb-exceptions": []any{"error of attempt 5"}}},
			}},
			{"as text", amqp.Table{"mb-retries": "1"}, []step{
				{"cover-art-archive.retry", amqp.Table{"mb-retries": int32(0), "mb-exceptions": []any{"error of attempt 4"}}},
			}},
			{"not a number", amqp.Table{"mb-retries": "four"}, []step{
				{"cover-art-archive.failed", amqp.Table{"mb-retries": "four", "mb-exceptions": []any{"error of attempt 5"}}},
			}},
		} {
			t.Run(tc.name, func(t *testing.T) {
				msg := amqp.Publishing{Body: []byte("f27ec8db-af05-4f36-916e-3d57f91ecf5e"), MessageId: "id", Headers: tc.first}
				for i, step := range tc.steps {
					r.publish("cover-art-archive", "index", msg)
					got := r.take(step.queue)
					if got.Exchange != step.queue || got.RoutingKey != "index" {
						t.Errorf("copy %d: got exchange %q, routing key %q; want %q, index", i+1, got.Exchange, got.RoutingKey, step.queue)
					}
					msg.Headers, msg.DeliveryMode = step.headers, amqp.Persistent
					if diff := cmp.Diff(msg, wire(got)); diff != "" {
						t.Errorf("copy %d: -want +got:\n%s", i+1, diff)
					}
				}
			})
		}
	})
}

func TestCoverArtRetriesMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		testkit.Alone(t, b, "cover-art-archive")
		r := newRaw(t, b.URL)
		p := coverArt(t, r, preset.CoverArt{RetryDelay: 50 * time.Millisecond, Retries: 2})
		h := newScript(func(m *reprise.Delivery) error { return errScripted })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: "cover-art-archive.move", Handler: h, Strategy: p.Strategy()})
		for _, to := range [][2]string{
			{"cover-art-archive", "move"},
			// With its original routing key, a message that was published directly to the queue would be dropped when it
			// expires. The worker therefore uses the routing key of the binding.
			{"", "cover-art-archive.move"},
		} {
			before := h.count()
			r.publish(to[0], to[1], amqp.Publishing{Body: []byte("1\n2\n3\njpg")})
			seen := h.wait(t, before+3)[before:]
			for i, m := range seen {
				if m.Attempt != i+1 || len(m.Errors) != i || len(m.Headers) != 0 {
					t.Errorf("attempt %d: got attempt %d with %d errors, headers %v; want %d errors and no headers", i+1, m.Attempt, len(m.Errors), m.Headers, i)
				}
			}
			if d := r.take("cover-art-archive.failed"); d.RoutingKey != "move" || len(d.Headers["mb-exceptions"].([]any)) != 3 {
				t.Errorf("parked message: got routing key %q, headers %v; want move and 3 mb-exceptions", d.RoutingKey, d.Headers)
			}
		}
	})
}

// The test takes four times four hours of virtual time.
func TestCoverArtWaitsFourHours(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		p := preset.CoverArt{}
		c := dial()
		began := time.Now()
		var at []time.Duration
		h := newScript(func(m *reprise.Delivery) error {
			at = append(at, time.Since(began).Round(time.Second))
			return errScripted
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "cover-art-archive.index", Handler: h, Strategy: p.Strategy()})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		r.publish("cover-art-archive", "index", amqp.Publishing{})
		time.Sleep(17 * time.Hour)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
		want := []time.Duration{0, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 16 * time.Hour}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("attempts: -want +got:\n%s", diff)
		}
		if n := r.depth("cover-art-archive.failed"); n != 1 {
			t.Errorf("%d messages were parked, want 1", n)
		}
	})
}
