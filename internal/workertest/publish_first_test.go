package workertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A publisher that starts before the worker can declare the queue with the arguments that the worker uses. The worker then
// processes the published messages.
func TestPublisherStartsBeforeWorker(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		client := dial(t, b.URL)
		queue := testkit.Name(t, "orders")
		newRaw(t, b.URL).deleteQueues(queue, topology.FailedQueue(queue))
		order := &reprise.Message{RoutingKey: queue, Body: []byte("17")}
		if _, ok := errors.AsType[*reprise.UnroutableError](client.Publish(t.Context(), order)); !ok {
			t.Error("Publish to a missing queue did not return UnroutableError")
		}
		if err := client.Declare(t.Context(), topology.Buckets{}.Topology(queue)); err != nil {
			t.Fatal(err)
		}
		if err := client.Publish(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		handled := make(chan string, 1)
		start(t, client, reprise.WorkerConfig{Queue: queue, Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			handled <- string(m.Body)
			return nil
		})})
		select {
		case body := <-handled:
			if body != "17" {
				t.Errorf("got body %q, want 17", body)
			}
		case <-time.After(timeout):
			t.Error("message was not handled")
		}
	})
}
