package failed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker that still fails parks the messages again while the redrive runs. The redrive sends no message twice: it sends each
// message that was in the queue, or, if messages with a higher priority return ahead of others, stops with an error.
func TestRedriveBesideFailingWorkerSendsOnce(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, equal := range []bool{true, false} {
			t.Run(fmt.Sprint("equal priorities ", equal), func(t *testing.T) {
				const messages = 20
				w := newWire(t, b.URL)
				work := w.queue("work", nil)
				from := topology.FailedQueue(work)
				w.deleteLater(from)
				must(t, w.client.Declare(t.Context(), topology.Topology{Queues: topology.Buckets{}.Topology(work).Queues[1:]}))
				for i := range messages {
					m := &reprise.Message{RoutingKey: from, MessageID: fmt.Sprint("id-", i)}
					if !equal {
						m.Priority = uint8(i % 2 * 9)
					}
					must(t, w.client.Publish(t.Context(), m))
				}
				var mu sync.Mutex
				seen := map[string]int{}
				worker, err := reprise.NewWorker(w.client, reprise.WorkerConfig{Queue: work, Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					seen[m.MessageID]++
					return reprise.Park(errors.New("no"))
				})})
				must(t, err)
				stop := w.runs(worker.Run)
				testkit.Eventually(t, longest, func() bool { return worker.Status().Err == nil })
				got, err := redriveFrom(t.Context(), w.client, RedriveConfig{From: from, To: &Target{RoutingKey: work}})
				if stopped := err != nil; got.Found != messages || stopped == (got.Sent == messages) || equal && stopped {
					t.Errorf("got %+v, error %v, want %d sent, or an error", got, err, messages)
				}
				testkit.Eventually(t, longest, func() bool { return w.depth(from) == messages && w.depth(work) == 0 })
				stop()
				if len(seen) != got.Sent {
					t.Errorf("messages handled: got %d, want %d", len(seen), got.Sent)
				}
				for id, n := range seen {
					if n != 1 {
						t.Errorf("message %s: handled %d times, want once", id, n)
					}
				}
			})
		}
	})
}
