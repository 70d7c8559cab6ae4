package reprisetest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// later runs f in a goroutine after d. The test waits for f.
func later(t *testing.T, d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(d)
		f()
	}()
	t.Cleanup(func() { <-done })
}

func queues(all ...topology.Queue) topology.Topology { return topology.Topology{Queues: all} }

// passing returns a queue that dead-letters messages to another queue after a delay.
func passing(name, to string, after time.Duration) topology.Queue {
	return topology.Queue{Name: name, Args: topology.Table{
		"x-message-ttl": after.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to,
	}}
}

// retrying returns a worker whose handler fails once per message.
func retrying(after time.Duration) reprise.WorkerConfig {
	return reprise.WorkerConfig{Queue: "orders", Handler: failing(1), Policy: every(after, 2)}
}

// inFlight contains paths of messages, and the time that a message takes on each path.
var inFlight = map[string]struct {
	takes time.Duration
	begin func(t *testing.T, b *reprisetest.Broker)
}{
	"running handler": {20 * time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(*reprise.Delivery) error {
			time.Sleep(20 * time.Minute)
			return nil
		})})
		b.Publish(t, order("1"))
	}},
	"prefetched messages": {30 * time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Prefetch: 1, Handler: handler(func(*reprise.Delivery) error {
			time.Sleep(10 * time.Minute)
			return nil
		})})
		b.Publish(t, order("1"), order("2"), order("3"))
	}},
	"retry": {4 * time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, retrying(4*time.Hour))
		b.Publish(t, order("1"))
	}},
	"retry by a worker without Work": {4 * time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		worker, err := reprise.NewWorker(b.Client(t, nil), retrying(4*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(context.Background()) }()
		t.Cleanup(func() {
			if err := worker.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			<-ran
		})
		b.Advance(0)
		b.Publish(t, order("1"))
	}},
	"blocked copy": {2*time.Hour + time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Buckets{}.Topology("orders"))
		b.Publish(t, order("1"))
		b.Block()
		later(t, 2*time.Hour, b.Unblock)
		b.Work(t, retrying(time.Minute))
	}},
	"copy in the memory of the worker": {2*time.Hour + time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Buckets{}.Topology("orders"))
		b.Publish(t, order("1"))
		b.Block()
		later(t, 2*time.Hour, b.Unblock)
		config := retrying(time.Minute)
		config.Order = reprise.AckThenPublish
		b.Work(t, config).Await(t, 1)
		for _, q := range b.Queues() {
			if q.Ready+q.Unacked > 0 {
				t.Errorf("queue must be empty: got %+v", q)
			}
		}
	}},
	"disconnected worker": {time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(0)})
		b.Refuse(time.Hour)
		b.Cut()
		b.Publish(t, order("1"))
	}},
	"paused worker": {5 * time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(m *reprise.Delivery) error {
			if m.Attempt == 1 && m.MessageID == "1" {
				return reprise.PauseFor(5*time.Hour, errScripted)
			}
			return nil
		})})
		b.Publish(t, order("1"), order("2"))
	}},
	"failure after a lost connection": {10 * time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(m *reprise.Delivery) error {
			time.Sleep(5 * time.Minute)
			if m.Redelivered {
				return nil
			}
			return errScripted
		})})
		b.Publish(t, order("1"))
		b.Cut()
	}},
	"debounce": {10 * time.Second, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(0), Debounce: &reprise.Debounce{Window: 10 * time.Second, Key: reprise.ContentKey}})
		b.Publish(t, order("1"))
	}},
	"fetched message": {time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders"}))
		b.Publish(t, order("1"))
		conn, ch := raw(t, b)
		d, _, err := ch.Get("orders", false)
		if err != nil {
			t.Fatal(err)
		}
		later(t, time.Hour, func() {
			if err := d.Ack(false); err != nil {
				t.Error(err)
			}
			conn.Close()
		})
	}},
	"delayed retry of the broker": {time.Minute, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(topology.Queue{Name: "orders", Args: topology.Table{
			"x-queue-type": "quorum", "x-delayed-retry-type": "all", "x-delayed-retry-min": int64(60_000), "x-delayed-retry-max": int64(60_000),
		}}))
		b.Publish(t, order("1"))
		conn, ch := raw(t, b)
		d, _, err := ch.Get("orders", false)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Reject(true); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}},
	"chain of queues": {3 * time.Hour, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, queues(
			passing("orders", "second", time.Hour), passing("second", "third", time.Hour), passing("third", "end", time.Hour),
			topology.Queue{Name: "end"}))
		b.Publish(t, order("1"))
	}},
	"missing queue": {time.Hour - 5*time.Second, func(t *testing.T, b *reprisetest.Broker) {
		first := passing("orders", "end", time.Minute)
		first.Args["x-queue-type"], first.Args["x-overflow"] = "quorum", "reject-publish"
		first.Args["x-dead-letter-strategy"] = "at-least-once"
		b.Declare(t, queues(first))
		b.Publish(t, order("1"))
		later(t, time.Hour-5*time.Second, func() { b.Declare(t, queues(topology.Queue{Name: "end"})) })
	}},
}

func TestDrainWaitsForMessagesInFlight(t *testing.T) {
	t.Parallel()
	for name, c := range inFlight {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				began := time.Now()
				c.begin(t, b)
				b.Drain(t)
				// A worker may be slightly late because it reconnects, and a dead letter because the
				// broker retries it only every few seconds.
				if took := time.Since(began); took < c.takes || took > c.takes+30*time.Second {
					t.Errorf("Drain took %s, want %s", took, c.takes)
				}
			})
		})
	}
}

// With every route, Drain waits until a failed message is at rest.
func TestDrainFollowsAllRoutes(t *testing.T) {
	t.Parallel()
	hour := []time.Duration{time.Hour, time.Hour}
	for _, c := range []struct {
		route topology.Route
		order reprise.Order
		want  []time.Duration
	}{
		{route: topology.Buckets{}, want: hour},
		{route: topology.Buckets{}, order: reprise.AckThenPublish, want: hour},
		{route: topology.Levels{}, want: hour},
		{route: topology.MessageTTL{}, want: hour},
		{route: topology.DeadLettering{Delay: time.Hour}, want: hour},
		{route: topology.DelayedRetry{Min: time.Hour, Max: 2 * time.Hour}, want: []time.Duration{time.Hour, 2 * time.Hour}},
		{route: topology.Requeuing{}, want: []time.Duration{0, 0}},
		{route: preset.CoverArt{Retries: 2}.Strategy().Route, want: []time.Duration{4 * time.Hour, 4 * time.Hour}},
	} {
		t.Run(fmt.Sprintf("%T", c.route), func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				queue, m := "orders", order("1")
				if c.route.Topology("").Exchanges != nil {
					queue, m.Exchange, m.RoutingKey = "cover-art-archive.index", "cover-art-archive", "index"
				}
				w := b.Work(t, reprise.WorkerConfig{
					Queue: queue, Handler: failing(9), Policy: every(time.Hour, 3), Order: c.order, Strategy: topology.Strategy{Route: c.route},
				})
				b.Publish(t, m)
				b.Drain(t)
				if diff := cmp.Diff(c.want, w.Attempts().Delays()); diff != "" {
					t.Errorf("delays: -want +got:\n%s", diff)
				}
				if got := b.Parked(t, queue); len(got) != 1 || got[0].MessageID != "1" {
					t.Errorf("%d messages were parked, want 1", len(got))
				}
			})
		})
	}
}

func TestDrainIgnoresMessagesAtRest(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, b *reprisetest.Broker){
		"no messages": func(t *testing.T, b *reprisetest.Broker) {
			b.Work(t, retrying(time.Hour))
		},
		"queue without consumers": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, topology.Buckets{}.Topology("orders"))
			b.Publish(t, order("1"))
		},
		"stopped worker": func(t *testing.T, b *reprisetest.Broker) {
			if err := b.Work(t, retrying(time.Hour)).Stop(); err != nil {
				t.Error(err)
			}
			b.Publish(t, order("1"))
		},
		"worker stopped during an attempt": func(t *testing.T, b *reprisetest.Broker) {
			w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(ctx context.Context, _ *reprise.Delivery) error {
				<-ctx.Done()
				return errScripted
			})})
			b.Publish(t, order("1"))
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
		},
		"worker stopped without a connection": func(t *testing.T, b *reprisetest.Broker) {
			w := b.Work(t, retrying(time.Hour))
			b.Refuse(time.Minute)
			b.Cut()
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
			b.Publish(t, order("1"))
		},
		"consumer reconnected and closed": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, queues(topology.Queue{Name: "orders"}))
			for _, leave := range []func(conn *amqp.Connection){
				func(*amqp.Connection) { b.Cut() },
				func(conn *amqp.Connection) { conn.Close() },
			} {
				conn, ch := raw(t, b)
				if _, err := ch.Consume("orders", "", false, false, false, false, nil); err != nil {
					t.Error(err)
				}
				leave(conn)
			}
			b.Publish(t, order("1"))
		},
		"consumer closed its connection": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, queues(topology.Queue{Name: "orders"}))
			conn, ch := raw(t, b)
			if _, err := ch.Consume("orders", "", false, false, false, false, nil); err != nil {
				t.Error(err)
			}
			conn.Close()
			b.Publish(t, order("1"))
		},
		"queue drops expired messages": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, queues(topology.Queue{Name: "orders", Args: topology.Table{"x-message-ttl": int64(60_000)}}))
			b.Publish(t, order("1"))
		},
		"message expires behind a message without expiration": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, queues(topology.Queue{Name: "orders", Args: topology.Table{"x-dead-letter-exchange": "amq.fanout"}}))
			second := order("2")
			second.Expiration = time.Minute
			b.Publish(t, order("1"), second)
		},
		"failed queue with expiring messages": func(t *testing.T, b *reprisetest.Broker) {
			b.Declare(t, queues(passing("orders.failed", "archive", time.Hour)))
			m := order("1")
			m.RoutingKey = "orders.failed"
			b.Publish(t, m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				begin(t, b)
				began := time.Now()
				b.Drain(t)
				if took := time.Since(began); took != 0 {
					t.Errorf("Drain took %s, want 0", took)
				}
			})
		})
	}
}

// If Drain cannot finish, it reports the remaining messages and where they are.
func TestDrainReportsRemainingMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin func(t reprisetest.TB, b *reprisetest.Broker)
		want  []string
	}{
		"handler does not return": {func(t reprisetest.TB, b *reprisetest.Broker) {
			b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(ctx context.Context, _ *reprise.Delivery) error {
				<-ctx.Done()
				return nil
			})})
			b.Publish(t, order("1"))
		}, []string{
			"orders: 1 unacknowledged, 1 consumer\n",
			`message "1" of orders, attempt 1: being handled, started 10m0s ago`,
		}},
		"retry after the timeout": {func(t reprisetest.TB, b *reprisetest.Broker) {
			b.Work(t, retrying(time.Hour))
			b.Publish(t, order("1"))
		}, []string{"1 ready, the next expires in 50m0s, no consumers"}},
		"worker cannot connect": {func(t reprisetest.TB, b *reprisetest.Broker) {
			b.Work(t, retrying(time.Hour))
			b.Publish(t, order("1"))
			b.Advance(time.Hour - time.Second)
			b.Refuse(time.Hour)
			b.Cut()
		}, []string{"orders: 1 ready, no consumer since its connection was lost 10m0s ago"}},
		"canceled consumer": {func(t reprisetest.TB, b *reprisetest.Broker) {
			b.Declare(t, queues(topology.Queue{Name: "orders"}, topology.Queue{Name: "others"}))
			conn, ch := raw(t.(interface{ TB() testing.TB }).TB(), b)
			t.Cleanup(func() { conn.Close() })
			if _, err := ch.Consume("orders", "me", false, false, false, false, nil); err != nil {
				t.Errorf("%v", err)
			}
			if err := ch.Cancel("me", false); err != nil {
				t.Errorf("%v", err)
			}
			b.Publish(t, order("1"), &reprise.Message{RoutingKey: "others"})
		}, []string{
			"orders: 1 ready, no consumer, but the connection of an earlier consumer is open",
			"at rest:\n\tothers: 1 ready, no consumers",
		}},
		"dead letter without a queue": {func(t reprisetest.TB, b *reprisetest.Broker) {
			first := passing("orders", "nowhere", time.Second)
			first.Args["x-queue-type"], first.Args["x-overflow"] = "quorum", "reject-publish"
			first.Args["x-dead-letter-strategy"] = "at-least-once"
			b.Declare(t, queues(first))
			b.Publish(t, order("1"))
		}, []string{"orders: 1 dead-lettered to a queue that rejects them or does not exist, no consumers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := try(t, func(f *fake) {
					b := reprisetest.Config{Timeout: 10 * time.Minute}.New(f)
					c.begin(f, b)
					b.Drain(f)
				})
				if len(got.failures) != 1 || !strings.HasPrefix(got.failures[0], "reprisetest: Drain: timed out after 10m0s; messages are still in flight:\n\t") {
					t.Fatalf("failures: got\n%s\nwant one with \"Drain: timed out after 10m0s; messages are still in flight\"", got)
				}
				for _, want := range c.want {
					if !strings.Contains(got.failures[0], want) {
						t.Errorf("failure does not contain %q:\n%s", want, got)
					}
				}
				if len(got.logs) != 1 || !strings.Contains(got.logs[0], "events") || !strings.Contains(got.logs[0], "orders") {
					t.Errorf("log must have one entry with the events of orders: got\n%s", got.logs)
				}
			})
		})
	}
}
