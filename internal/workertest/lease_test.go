package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A leased attempt runs for hours, although the acknowledgement timeout of the broker is 30 minutes, and settles its message
// once.
func TestLeasedAttemptRunsForHours(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"success": nil, "retry": errScripted, "park": reprise.Park(errScripted)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				h := newScript(func(m *reprise.Delivery) error {
					if m.Attempt > 1 {
						return nil
					}
					time.Sleep(6 * time.Hour)
					return result
				})
				c := dial()
				stop := start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Lease: 10 * time.Minute, Policy: quick(2)})
				r.publish("", "work", amqp.Publishing{MessageId: "long"})
				time.Sleep(12 * time.Hour)
				want, parked := 1, 0
				switch name {
				case "retry":
					want = 2
				case "park":
					parked = 1
				}
				if n := h.count(); n != want {
					t.Errorf("attempts: got %d, want %d", n, want)
				}
				for _, m := range h.wait(t, want) {
					if m.MessageID != "long" || m.RoutingKey != "work" || len(m.Headers) > 0 {
						t.Errorf("got %+v, want the message as published", m)
					}
				}
				if work, failed := r.depth("work"), r.depth("work.failed"); work != 0 || failed != parked {
					t.Errorf("messages: got %d in the work queue and %d in the failed queue, want 0 and %d", work, failed, parked)
				}
				for _, event := range []string{"consuming interrupted", "consumer timeout is near", "lease queue interrupted", "lease lost", "lease not renewed"} {
					if n := c.log.count(event); n != 0 {
						t.Errorf("log: got %d events %q, want 0", n, event)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// leased is a worker with a short lease, whose handler calls the function.
func leased(queue string, s topology.Strategy, handle func(ctx context.Context, m *reprise.Delivery) error) reprise.WorkerConfig {
	return reprise.WorkerConfig{Queue: queue, Strategy: s, Handler: reprise.HandlerFunc(handle), Lease: 2 * time.Second, Policy: quick(3)}
}

// A message whose process ends returns to the work queue with its checkpoint. The retry also has the checkpoint.
func TestCheckpointSurvivesCrashAndRetry(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		type attempt struct {
			number      int
			redelivered bool
			checkpoint  string
		}
		attempts := make(chan attempt, 10)
		saved := make(chan error, 1)
		var n atomic.Int32
		handle := func(ctx context.Context, m *reprise.Delivery) error {
			attempts <- attempt{m.Attempt, m.Redelivered, string(reprise.Checkpoint(ctx))}
			switch n.Add(1) {
			case 1:
				saved <- reprise.SaveCheckpoint(ctx, []byte("page 4"))
				<-ctx.Done()
				if context.Cause(ctx) != reprise.ErrLeaseLost {
					t.Errorf("context: got %v, want ErrLeaseLost", context.Cause(ctx))
				}
				return nil // ignored
			case 2:
				return errScripted
			}
			return nil
		}
		cfg := leased(queue, strategy, handle)
		cfg.Lease = 8 * time.Second // no renewal begins before the cut, which would duplicate the message
		other := dial(t, b.URL)
		first := start(t, dial(t, proxy.URL()), cfg)
		r.publish("", queue, amqp.Publishing{MessageId: "long", Body: []byte("body"), Headers: amqp.Table{"tenant": "acme"}})
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
		if n := r.depth(queue); n != 0 {
			t.Errorf("work queue: got %d messages, want 0", n)
		}
		proxy.Refuse()
		proxy.Cut()
		second := start(t, other, cfg)
		for i, want := range []attempt{{1, false, ""}, {1, true, "page 4"}, {2, true, "page 4"}} {
			if got := <-attempts; got != want {
				t.Errorf("attempt %d: got %+v, want %+v", i+1, got, want)
			}
		}
		if err := errors.Join(first(), second()); err != nil {
			t.Error(err)
		}
		for _, q := range []string{queue, queue + ".failed"} {
			if n := r.depth(q); n != 0 {
				t.Errorf("queue %s: got %d messages, want 0", q, n)
			}
		}
	})
}

// leaseQueue returns the name of the lease queue, which the log contains.
func leaseQueue(t *testing.T, c client) string {
	t.Helper()
	c.log.wait(t, "holding leases", 1)
	_, rest, _ := strings.Cut(c.log.String(), "lease_queue=")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}

// An attempt continues after a short loss of the connection, settles its message once, and leaves no queue.
func TestLeaseSurvivesLostConnection(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]error{"success": nil, "retry": errScripted, "park": reprise.Park(errScripted)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{})
				proxy := testkit.NewProxy(t, b.URL)
				var attempts atomic.Int32
				end := make(chan error, 1)
				c := dial(t, proxy.URL())
				cfg := leased(queue, strategy, func(ctx context.Context, m *reprise.Delivery) error {
					if attempts.Add(1) > 1 {
						return nil
					}
					err := reprise.SaveCheckpoint(ctx, []byte("1"))
					proxy.Cut()
					err = errors.Join(err, reprise.SaveCheckpoint(ctx, []byte("2")))
					proxy.Cut()
					end <- errors.Join(err, ctx.Err())
					return result
				})
				cfg.Lease = time.Minute
				stop := start(t, c, cfg)
				r.publish("", queue, amqp.Publishing{MessageId: "long"})
				if err := <-end; err != nil {
					t.Fatal(err)
				}
				want, parked := int32(1), 0
				switch name {
				case "retry":
					want = 2
				case "park":
					parked = 1
				}
				testkit.Eventually(t, timeout, func() error {
					if n, work, failed := attempts.Load(), r.depth(queue), r.depth(queue+".failed"); n != want || work != 0 || failed != parked {
						return fmt.Errorf("got %d attempts, %d messages in the work queue and %d in the failed queue", n, work, failed)
					}
					return nil
				})
				c.log.wait(t, "holding leases", 3)
				name := leaseQueue(t, c)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := r.depth(name); n != -1 {
					t.Errorf("lease queue: got %d messages, want no queue", n)
				}
				if n := attempts.Load(); n != want {
					t.Errorf("attempts: got %d, want %d", n, want)
				}
			})
		})
	}
}

// A shutdown returns a leased message at once, and the interrupted attempt counts neither as an attempt nor as a crash.
func TestShutdownReturnsLeasedMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		saved := make(chan error, 1)
		c := dial(t, b.URL)
		cfg := leased(queue, strategy, func(ctx context.Context, m *reprise.Delivery) error {
			saved <- reprise.SaveCheckpoint(ctx, []byte(m.MessageID))
			<-ctx.Done()
			return ctx.Err()
		})
		cfg.Lease, cfg.DrainTimeout = 10*time.Minute, time.Millisecond
		stop := start(t, c, cfg)
		r.publish("", queue, amqp.Publishing{MessageId: "long", Body: []byte("body"), Headers: amqp.Table{"tenant": "acme"}})
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
		name := leaseQueue(t, c)
		if err := stop(); err != nil {
			t.Error(err)
		}
		d := r.take(queue)
		if d.MessageId != "long" || string(d.Body) != "body" || d.Headers["tenant"] != "acme" || string(d.Headers[reprise.HeaderCheckpoint].([]byte)) != "long" ||
			d.Headers[reprise.HeaderLease] != nil || d.Headers[reprise.HeaderCrashes] != nil || d.Headers[topology.HeaderAttempts] != nil {
			t.Errorf("got %+v", d)
		}
		if n := r.depth(name); n != -1 {
			t.Errorf("lease queue: got %d messages, want no queue", n)
		}
	})
}

// If the broker cannot store the copy, the attempt keeps the original.
func TestRefusedLeaseKeepsOriginal(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		saved := make(chan error, 10)
		var attempts atomic.Int32
		start(t, dial(t, proxy.URL()), leased(queue, strategy, func(ctx context.Context, m *reprise.Delivery) error {
			saved <- reprise.SaveCheckpoint(ctx, make([]byte, reprise.MaxCheckpoint)) // too large for a frame
			if attempts.Add(1) == 1 {
				proxy.Cut() // the broker redelivers the original
			}
			return nil
		}))
		r.publish("", queue, amqp.Publishing{Headers: amqp.Table{"large": strings.Repeat("x", 128_000)}})
		testkit.Eventually(t, timeout, func() bool { return attempts.Load() == 2 })
		for range 2 {
			if err := <-saved; !errors.Is(err, reprise.ErrInvalidMessage) {
				t.Errorf("got %v, want ErrInvalidMessage", err)
			}
		}
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 0 })
	})
}

// A handler that kills its process is parked at the CrashLimit, also if its attempts have a lease.
func TestLeaseCountsCrashes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var attempts atomic.Int32
		for range 10 {
			c := dial()
			h := func(ctx context.Context, m *reprise.Delivery) error {
				attempts.Add(1)
				if err := reprise.SaveCheckpoint(ctx, nil); err != nil {
					t.Error(err)
				}
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				_ = c.Close(ctx) // as if the process had exited
				time.Sleep(time.Second)
				return nil
			}
			w, err := reprise.NewWorker(c.Client, leased("work", topology.Strategy{}, h))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { _ = w.Run(ctx); close(ended) }()
			if attempts.Load() == 0 {
				c.log.wait(t, "consuming", 1)
				r.publish("", "work", amqp.Publishing{MessageId: "poison"})
			}
			time.Sleep(time.Minute)
			cancel()
			<-ended
		}
		if failed := r.depth("work.failed"); attempts.Load() != 5 || failed != 1 {
			t.Errorf("got %d attempts and %d messages in the failed queue, want 5 and 1", attempts.Load(), failed)
		}
	})
}

// While all handlers of a worker have leases, messages stay in the queue, where other workers receive them.
// Before RabbitMQ 4.3, the messages that a worker with leases returns would reach the delivery limit without an attempt.
func TestLeaseRequiresVersion(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		for name, limits := range map[string]reprise.WorkerConfig{"default": {}, "prefetch": {Prefetch: 2}, "concurrency": {Concurrency: 2}} {
			queue, strategy := r.names(topology.Buckets{})
			began := make(chan struct{})
			cfg := leased(queue, strategy, func(context.Context, *reprise.Delivery) error { close(began); return nil })
			cfg.Prefetch, cfg.Concurrency = limits.Prefetch, limits.Concurrency
			r.declare(c, topology.Buckets{}.Topology(queue))
			w, err := reprise.NewWorker(c.Client, cfg)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- w.Run(t.Context()) }()
			r.publish("", queue, amqp.Publishing{})
			refuses := b.IsRabbitMQ && b.Version < "4.3" && name != "default"
			select {
			case err := <-ended:
				if !refuses || err == nil || !strings.Contains(err.Error(), "requires RabbitMQ 4.3") {
					t.Errorf("%s: Run returned %v", name, err)
				}
			case <-began:
				if refuses {
					t.Errorf("%s: the worker consumes", name)
				}
				_ = w.Shutdown(t.Context())
			}
		}
	})
}

func TestLeasedWorkerFetchesNoMessages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		concurrency int
		late        bool // the short messages arrive while all handlers have leases
	}{
		"messages wait":   {concurrency: 1},
		"messages arrive": {concurrency: 2, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				h := newScript(func(m *reprise.Delivery) error {
					if m.MessageID == "long" {
						time.Sleep(6 * time.Hour)
					}
					return nil
				})
				c := dial()
				stop := start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Lease: 10 * time.Minute, Concurrency: tt.concurrency})
				publish := func(id string, n int) {
					for range n {
						r.publish("", "work", amqp.Publishing{MessageId: id})
					}
				}
				publish("long", tt.concurrency)
				if tt.late {
					time.Sleep(30 * time.Minute)
				}
				publish("short", 2)
				time.Sleep(time.Hour)
				if n := r.depth("work"); n != 2 || h.count() != tt.concurrency {
					t.Errorf("got %d messages in the queue and %d attempts, want 2 and %d", n, h.count(), tt.concurrency)
				}
				if d := r.take("work"); d.Redelivered { // the broker would count a requeue
					t.Error("message was fetched and requeued")
				}
				time.Sleep(6 * time.Hour)
				if n, want := h.count(), tt.concurrency+1; r.depth("work") != 0 || n != want {
					t.Errorf("got %d messages in the queue and %d attempts, want 0 and %d", r.depth("work"), n, want)
				}
				for _, event := range []string{"consuming interrupted", "waited too long to begin"} {
					if n := c.log.count(event); n != 0 {
						t.Errorf("log: got %d events %q, want 0", n, event)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
