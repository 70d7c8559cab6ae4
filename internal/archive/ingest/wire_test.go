package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker permits all attempts again for a replayed message, with each method of counting attempts.
func TestReplayedMessageHasAllAttempts(t *testing.T) {
	const attempts = 3
	for name, s := range map[string]struct {
		strategy topology.Strategy
		waits    string
	}{
		"trail":      {topology.Strategy{Route: topology.MessageTTL{}}, ".wait"},
		"count down": {topology.Strategy{Route: topology.MessageTTL{}, Marks: topology.CountDown{Header: "mb-retries", Errors: "mb-exceptions", Default: attempts - 1}}, ".wait"},
		"count up":   {topology.Strategy{Route: topology.MessageTTL{}, Marks: topology.CountUp{Header: "x-processing-attempts"}}, ".wait"},
		"growing":    {topology.Strategy{Route: topology.GrowingTTL{First: 10 * time.Millisecond}}, ".wait"},
		"deaths":     {topology.Strategy{Route: topology.DeadLettering{Delay: 10 * time.Millisecond}}, ".retry"},
		"requeuing":  {topology.Strategy{Route: topology.Requeuing{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				w := archivetest.NewWire(t, b.URL)
				queue := testkit.Name(t, "work")
				w.DeleteLater(queue, queue+".failed", queue+".wait", queue+".retry")
				var mu sync.Mutex
				var seen []*reprise.Delivery
				worker, err := reprise.NewWorker(w.Client, reprise.WorkerConfig{
					Queue: queue, Strategy: s.strategy, Policy: reprise.Policy{MaxAttempts: attempts, Backoff: backoff.Fixed(10 * time.Millisecond)},
					Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, m)
						return fmt.Errorf("error %d", m.Attempt)
					}),
				})
				archivetest.Must(t, err)
				w.Runs(worker.Run)
				ingests(w, w.Client, queue+".failed")
				testkit.Eventually(t, archivetest.Longest, func() error {
					return w.Client.Publish(t.Context(), &reprise.Message{
						RoutingKey: queue, MessageID: "m", Headers: map[string]any{"own": int32(7)},
						Body: []byte("{}"), ContentType: "application/json", Priority: 2, Type: "order",
					})
				})
				testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 1 })
				first := w.Archived()[0]
				if first.Queue != queue || first.Attempts != attempts || first.Error != fmt.Sprint("error ", attempts) || first.State != failed.Failed {
					t.Errorf("archived message: got %+v, want state failed in queue %s after %d attempts", first, queue, attempts)
				}
				r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test")
				archivetest.Must(t, err)
				re := replay.New(w.Client, w.Archive, replay.Config{})
				r, err = re.Finish(t.Context(), r.ID)
				if err != nil || r.State == failed.ReplayStopped || r.Sent != 1 {
					t.Fatalf("Finish: got %+v, %v, want 1 sent message, not stopped", r, err)
				}
				testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 2 })
				mu.Lock()
				defer mu.Unlock()
				var numbers []int
				for _, m := range seen {
					numbers = append(numbers, m.Attempt)
					if m.MessageID != "m" || m.RoutingKey != queue || m.Headers["own"] != int32(7) || m.Type != "order" || m.Priority != 2 {
						t.Errorf("handled message: got %+v, want message m with its key, header and properties", m)
					}
				}
				if diff := cmp.Diff([]int{1, 2, 3, 1, 2, 3}, numbers); diff != "" {
					t.Error(diff)
				}
				again := w.Archived()[1]
				if again.Back != r.ID || again.BackOf != first.ID || again.Group == 0 || again.Attempts != attempts {
					t.Errorf("message that failed again: got %+v, want back from replay %d as message %d, after %d attempts", again, r.ID, first.ID, attempts)
				}
				if first, err := w.Archive.Get(t.Context(), first.ID); err != nil || first.State != failed.Replayed {
					t.Errorf("replayed message: got %+v, %v, want state replayed", first, err)
				}
			})
		})
	}
}

// If the connection of an Ingest fails at any frame, each message is archived once.
func TestIngestSurvivesConnectionLossAtAnyFrame(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		queue := w.Queue("failed", nil)
		published, step := 0, 1
		switch {
		case b.IsRabbitMQ:
			step = 7 // closing a connection takes time
		case testing.Short():
			step = 3
		}
		for _, direction := range []testkit.Direction{testkit.ToClient, testkit.ToServer} {
			for frame := 1; frame <= 16; frame += step {
				proxy := testkit.NewProxy(t, b.URL)
				proxied := archivetest.Connect(t, proxy.URL())
				proxy.CutBeforeFrame(direction, frame)
				stop := ingests(w, proxied, queue)
				for range 6 {
					w.Publish(queue, nil, fmt.Sprint(published))
					published++
				}
				testkit.Eventually(t, archivetest.Longest, func() bool { return w.HasArchived(published) })
				stop()
				proxy.Cut()
				// The broker redelivers messages whose acknowledgement it did not receive.
				stop = ingests(w, w.Client, queue)
				testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(queue) == 0 })
				stop()
				if kept := len(w.Archived()); kept != published {
					t.Fatalf("cut before frame %d %v: got %d archived messages, want %d", frame, direction, kept, published)
				}
			}
		}
	})
}

// An Ingest archives messages that another program or the broker has moved to a failed queue, with their history.
func TestIngestArchivesDeadLetters(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		parked := w.Queue("parked", nil)
		work := w.Queue("work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": parked})
		archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{RoutingKey: work, MessageID: "expired", Expiration: time.Millisecond}))
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(parked) == 1 })
		w.Publish(work, nil, "rejected")
		var d amqp.Delivery
		testkit.Eventually(t, archivetest.Longest, func() error {
			got, ok, err := w.Raw.Get(work, false)
			if d = got; !ok {
				return errors.Join(err, errors.New("queue is empty"))
			}
			return err
		})
		archivetest.Must(t, d.Reject(false))
		ingests(w, w.Client, parked)
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 2 })
		for _, m := range w.Archived() {
			why := "dead-lettered by the broker: " + m.Properties.MessageID + " in " + work
			if m.Queue != work || m.FailedQueue != parked || m.Error != why || m.Exchange != "" || m.RoutingKey != work || m.LastFailed.IsZero() {
				t.Errorf("archived message: got %+v, want queue %s, failed queue %s, error %q", m, work, parked, why)
			}
		}
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test")
		archivetest.Must(t, err)
		re := replay.New(w.Client, w.Archive, replay.Config{})
		_, err = re.Finish(t.Context(), r.ID)
		archivetest.Must(t, err)
		for _, d := range w.Take(work) {
			if len(d.Headers) > 2 || d.Headers["x-death"] != nil || d.Expiration != "" {
				t.Errorf("replayed message: got headers %v, want at most 2, without x-death", d.Headers)
			}
		}
	})
}

// ingests runs an Ingest of the queues until the test ends or the caller calls stop.
func ingests(w *archivetest.Wire, c *reprise.Client, queues ...string) (stop func()) {
	w.Helper()
	in, err := New(c, w.Archive, Config{Queues: queues})
	archivetest.Must(w.T, err)
	return w.Runs(in.Run)
}
