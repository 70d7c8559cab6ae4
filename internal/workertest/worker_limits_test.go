package workertest

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestValidateRejectsTooLongNames(t *testing.T) {
	t.Parallel()
	if err := (&reprise.Config{Name: strings.Repeat("n", 200)}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (&reprise.Config{Name: strings.Repeat("n", 201)}).Validate(); err == nil || !strings.Contains(err.Error(), "Config.Name must have at most 200 bytes: got 201") {
		t.Errorf("name of 201 bytes: got %v, want at most 200 bytes", err)
	}
	cfg := reprise.WorkerConfig{Queue: strings.Repeat("q", 229), Handler: newScript(nil)}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "must have a name of at most 228 bytes: got 229") {
		t.Errorf("queue name of 229 bytes: got %v, want at most 228 bytes", err)
	}
	cfg.Queue = cfg.Queue[1:]
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// Regardless of the order of Shutdown and Run, Run either drains or does nothing.
func TestShutdownConcurrentWithRun(t *testing.T) {
	t.Parallel()
	c := dial(t, testkit.Embedded(t).URL)
	for range 2000 {
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "q", Handler: newScript(nil)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var both sync.WaitGroup
		both.Go(func() { err = w.Run(ctx) })
		both.Go(func() { _ = w.Shutdown(t.Context()) })
		both.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRetryIsLimitedToLongestDelayOfRoute(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(math.MaxInt64, errScripted) })
		c := dial(t, b.URL)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{})
		c.log.wait(t, "retry", 1)
		if n := r.depth(queue + ".failed"); n != 0 {
			t.Errorf("%d messages were parked, want 0", n)
		}
	})
}

// rejectingRoute is a route that rejects every retry.
type rejectingRoute struct{ topology.Buckets }

func (rejectingRoute) Wait(topology.Delivery, time.Duration) (topology.Hop, error) {
	return topology.Hop{}, errScripted
}

func TestWorkerParksMessageThatRouteRejects(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, _ := r.names(topology.Buckets{})
		h := newScript(func(m *reprise.Delivery) error { return reprise.RetryAfter(time.Hour, nil) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: topology.Strategy{Route: rejectingRoute{}}})
		r.publish("", queue, amqp.Publishing{})
		errs, _ := r.take(queue + ".failed").Headers["x-reprise-errors"].([]any)
		first, _ := errs[0].(amqp.Table)
		if text := first["error"]; text != "retry after 1h0m0s\n\nparked: cannot retry the message: scripted failure" {
			t.Errorf("error header: got %q, want the requested delay and the reason to park", text)
		}
	})
}

// A worker uses the arguments of a failed queue in WorkerConfig.Topology, also when it declares a deleted queue again.
func TestWorkerUsesCustomFailedQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		mine := topology.Queue{Name: queue + ".failed", Args: topology.Table{"x-max-length": int32(1000)}}
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: strategy, Topology: topology.Topology{Queues: []topology.Queue{mine}},
		})
		for range 2 {
			r.publish("", queue, amqp.Publishing{})
			r.take(mine.Name)
			if _, err := r.QueueDeclare(mine.Name, true, false, false, false, amqp.Table{"x-max-length": int32(1000)}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.QueueDelete(mine.Name, false, false, false); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDeclarationTimesOut(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var reading sync.RWMutex
		c := dial(t, b.URL, dialBlockable(&reading, consumes), func(c *reprise.Config) { c.ConfirmTimeout = 200 * time.Millisecond })
		reading.Lock()
		defer reading.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		err := c.Declare(ctx, topology.Topology{Exchanges: []topology.Exchange{{Name: "amq.direct", Kind: topology.Direct}}})
		if err == nil || !strings.Contains(err.Error(), "the broker did not answer within 200ms") {
			t.Errorf("Declare: got %v, want did not answer within 200ms", err)
		}
	})
}
