package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
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
				w := archivetest.NewWire(t, b.URL)
				work := w.Queue("work", nil)
				from := topology.FailedQueue(work)
				w.DeleteLater(from)
				archivetest.Must(t, w.Client.Declare(t.Context(), topology.Topology{Queues: topology.Buckets{}.Topology(work).Queues[1:]}))
				for i := range messages {
					m := &reprise.Message{RoutingKey: from, MessageID: fmt.Sprint("id-", i)}
					if !equal {
						m.Priority = uint8(i % 2 * 9)
					}
					archivetest.Must(t, w.Client.Publish(t.Context(), m))
				}
				var mu sync.Mutex
				seen := map[string]int{}
				worker, err := reprise.NewWorker(w.Client, reprise.WorkerConfig{Queue: work, Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					seen[m.MessageID]++
					return reprise.Park(errors.New("no"))
				})})
				archivetest.Must(t, err)
				stop := w.Runs(worker.Run)
				testkit.Eventually(t, archivetest.Longest, func() bool { return worker.Status().Err == nil })
				got, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from, To: &failed.Target{RoutingKey: work}})
				if stopped := err != nil; got.Found != messages || stopped == (got.Sent == messages) || equal && stopped {
					t.Errorf("got %+v, error %v, want %d sent, or an error", got, err, messages)
				}
				testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == messages && w.Depth(work) == 0 })
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
