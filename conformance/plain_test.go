package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker with a plain work queue retries and parks, and another program can declare the queue without arguments, before
// and after the worker.
func TestPlainQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, workerFirst := range []bool{true, false} {
			r := dialRaw(t, b).open(100, 0)
			work := testkit.Name(t, "plain")
			t.Cleanup(func() {
				for _, queue := range []string{work, topology.FailedQueue(work), work + ".wait.0-1000"} {
					r.send(1, &amqpwire.QueueDelete{Queue: queue})
					expect(r, &amqpwire.QueueDeleteOk{})
				}
			})
			declare := func() {
				r.send(1, &amqpwire.QueueDeclare{Queue: work, Durable: true})
				expect(r, &amqpwire.QueueDeclareOk{})
			}
			if !workerFirst {
				declare()
			}
			client, err := reprise.Dial(t.Context(), b.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close(context.Background()) })
			var attempts atomic.Int64
			worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
				Queue: work, Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(time.Millisecond)},
				Topology: topology.Topology{Queues: []topology.Queue{{Name: work, IfAbsent: true}}},
				Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
					attempts.Add(1)
					return errors.New("not yet")
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			runUntilEnd(t, worker.Run)
			testkit.Eventually(t, timeout, func() bool { return worker.Status().Err == nil })
			declare()
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: work}); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, timeout, func() bool {
				n, err := client.Depth(t.Context(), topology.FailedQueue(work))
				return err == nil && n == 1
			})
			if n := attempts.Load(); n != 2 {
				t.Errorf("got %d attempts, want 2", n)
			}
		}
	})
}

// A worker parks in the existing dead-letter queue of other programs, and a classic work queue dead-letters to it.
func TestClassicQueueWithExistingFailedQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := dialRaw(t, b).open(100, 0)
		work, dead := testkit.Name(t, "classic"), testkit.Name(t, "dead")
		r.send(1, &amqpwire.QueueDeclare{Queue: dead, Durable: true})
		expect(r, &amqpwire.QueueDeclareOk{})
		t.Cleanup(func() {
			for _, queue := range []string{work, dead} {
				r.send(1, &amqpwire.QueueDelete{Queue: queue})
				expect(r, &amqpwire.QueueDeleteOk{})
			}
		})
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(context.Background()) })
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: work, Strategy: topology.Strategy{Route: topology.ParkIn{Queue: dead}},
			Topology: topology.Topology{Queues: []topology.Queue{{Name: work, IfAbsent: true, Args: topology.Table{
				"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
			}}}},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return reprise.Park(errors.New("declined")) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := runUntilEnd(t, worker.Run)
		testkit.Eventually(t, timeout, func() bool { return worker.Status().Err == nil })
		for n, expiration := range []time.Duration{0, time.Millisecond} { // parked by the worker, expired without a worker
			if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: work, Expiration: expiration}); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, timeout, func() bool {
				depth, err := client.Depth(t.Context(), dead)
				return err == nil && depth == n+1
			})
			stop()
		}
		if n, err := client.Depth(t.Context(), topology.FailedQueue(work)); err == nil {
			t.Errorf("the worker has declared %s with %d messages", topology.FailedQueue(work), n)
		}
	})
}
