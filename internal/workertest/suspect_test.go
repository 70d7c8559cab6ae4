package workertest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If the next message must be processed alone, the worker must not fetch and requeue a message in a debounce window
// indefinitely.
func TestDebounceCompletesBeforeSuspectMessage(t *testing.T) {
	b := testkit.Embedded(t)
	r := newRaw(t, b.URL)
	queue, strategy := r.names(topology.Buckets{})
	c := dial(t, b.URL)
	if err := c.Declare(t.Context(), strategy.Route.Topology(queue)); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"sound", "suspect"} {
		r.publish("", queue, amqp.Publishing{MessageId: id, Body: []byte(id)})
	}
	for range 2 {
		crashWithTheSecond(t, b.URL, queue)
		testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 2 })
	}
	h := newScript(func(*reprise.Delivery) error { return nil })
	start(t, c, reprise.WorkerConfig{
		Queue: queue, Strategy: strategy, Handler: h,
		Debounce: &reprise.Debounce{Window: 50 * time.Millisecond, Key: reprise.ContentKey},
	})
	h.wait(t, 2)
}

// newSuspect declares the work queue of a worker, and publishes a message to it or, with lanes, to one of its lanes.
func newSuspect(t *testing.T, b testkit.Target, lanes int) (r *raw, c client, work, queue string) {
	t.Helper()
	r, c, work = newRaw(t, b.URL), dial(t, b.URL), testkit.Name(t, "work")
	queue, topo := work, topology.Buckets{}.Topology(work)
	if lanes > 0 {
		route := topology.Lanes{Count: lanes}
		queue, topo = route.Queue(work, 1), route.Topology(work)
	}
	r.declare(c, topo)
	r.publish("", queue, amqp.Publishing{MessageId: "suspect"})
	return r, c, work, queue
}

// A worker does not return a suspected message that it has received. A message that workers return in turn makes no progress, and
// before RabbitMQ 4.3, each return counts as a crash.
func TestWorkerKeepsSuspectMessage(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, lanes := range []int{0, 2} {
			t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
				r, c, work, queue := newSuspect(t, b, lanes)
				var crash func() error
				for range 3 {
					if crash != nil && crash() != nil {
						t.Fatal("cannot close the connection")
					}
					holder := newRaw(t, b.URL)
					holder.get(queue)
					crash = holder.conn.Close
				}
				began, gate := make(chan struct{}), make(chan struct{})
				start(t, c, reprise.WorkerConfig{
					Queue: work, Lanes: lanes, Concurrency: 1, CrashLimit: 3,
					Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
						close(began)
						<-gate
						return nil
					}),
				})
				r.publish("", queue, amqp.Publishing{MessageId: "sound"})
				<-began
				if lanes > 0 { // another consumer, which gets the message only if the worker returns it
					if _, err := r.Consume(queue, "", false, false, false, false, amqp.Table{"x-priority": int32(-1)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := crash(); err != nil {
					t.Fatal(err)
				}
				close(gate)
				if n := r.take(work + ".failed").Headers[reprise.HeaderCrashes]; n != int64(3) {
					t.Errorf("crashes: got %v, want 3", n)
				}
			})
		}
	})
}

// An attempt of a suspected message starts after the broker has received the requeues of the other messages. Otherwise, a crash in
// this attempt would count as a delivery of each.
func TestSuspectWaitsForRequeues(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4.3" {
			return // the worker does not requeue, because each requeue would count
		}
		for _, lanes := range []int{0, 2} {
			t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
				r, _, work, queue := newSuspect(t, b, lanes)
				for range 2 {
					holder := newRaw(t, b.URL)
					holder.get(queue)
					if err := holder.conn.Close(); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					r.publish("", queue, amqp.Publishing{MessageId: "sound"})
				}
				proxy := testkit.NewProxy(t, b.URL)
				cut := proxy.CutInNack()
				var early atomic.Bool // an attempt has started on the first connections
				start(t, dial(t, proxy.URL()), reprise.WorkerConfig{
					Queue: work, Lanes: lanes, Concurrency: 1,
					Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
						if proxy.Accepted() == 2 {
							early.Store(true)
						}
						return nil
					}),
				})
				<-cut
				testkit.Eventually(t, timeout, func() bool { return r.depth(queue) == 0 })
				if early.Load() {
					t.Error("the attempt has started before the requeues")
				}
			})
		}
	})
}

// crashWithTheSecond receives two messages, requeues the first, and closes the connection without settling the second.
func crashWithTheSecond(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(queue, "tag", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := <-deliveries
	<-deliveries
	if err := ch.Cancel("tag", false); err != nil {
		t.Fatal(err)
	}
	if err := first.Nack(false, true); err != nil {
		t.Fatal(err)
	}
	if err := ch.Qos(1, 0, false); err != nil { // returns after the broker has received the nack
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}
