package failed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// longest is the maximum time for which tests wait for an expected event. No test depends on the exact value.
const longest = 2 * time.Minute

// wire is a broker and an archive, in real time.
type wire struct {
	*testing.T
	url     string
	client  *reprise.Client
	raw     *amqp.Channel
	archive *Archive
}

func newWire(t *testing.T, url string) *wire {
	t.Helper()
	w := &wire{T: t, url: url, client: connect(t, url)}
	conn, err := amqp.Dial(url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w.raw, err = conn.Channel()
	must(t, err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	w.archive, err = Open(t.Context(), db, Config{Dialect: SQLite})
	must(t, err)
	return w
}

func connect(t *testing.T, url string) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	c, err := reprise.Dial(ctx, url, &reprise.Config{Reconnect: backoff.Exponential{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond}})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// queue declares a queue for the duration of the test.
func (w *wire) queue(prefix string, args amqp.Table) string {
	w.Helper()
	name := testkit.Name(w.T, prefix)
	_, err := w.raw.QueueDeclare(name, true, false, false, false, args)
	must(w.T, err)
	w.deleteLater(name)
	return name
}

func (w *wire) deleteLater(names ...string) {
	w.Cleanup(func() {
		for _, name := range names {
			_, _ = w.raw.QueueDelete(name, false, false, false)
		}
	})
}

func (w *wire) publish(queue string, headers map[string]any, bodies ...string) {
	w.Helper()
	for _, body := range bodies {
		must(w.T, w.client.Publish(w.Context(), &reprise.Message{RoutingKey: queue, Headers: headers, MessageID: body, Body: []byte(body)}))
	}
}

// take takes all messages from a queue.
func (w *wire) take(queue string) (all []amqp.Delivery) {
	w.Helper()
	for {
		d, ok, err := w.raw.Get(queue, true)
		must(w.T, err)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func (w *wire) depth(queue string) int {
	w.Helper()
	n, err := w.client.Depth(w.Context(), queue)
	must(w.T, err)
	return n
}

// runs calls run in a goroutine, and cancels it when the test ends or the caller calls stop.
func (w *wire) runs(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: got error %v, want none", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *wire) ingest(c *reprise.Client, queues ...string) (stop func()) {
	w.Helper()
	in, err := NewIngest(c, w.archive, IngestConfig{Queues: queues})
	must(w.T, err)
	return w.runs(in.Run)
}

// archived returns the archived messages, by ID.
func (w *wire) archived() (all []*Message) {
	w.Helper()
	for m, err := range w.archive.Each(w.Context(), Filter{}) {
		must(w.T, err)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Message) int { return int(a.ID - b.ID) })
	return all
}

// hasArchived reports whether the archive has at least n messages.
func (w *wire) hasArchived(n int) bool {
	w.Helper()
	total, err := w.archive.Count(w.Context(), Filter{})
	must(w.T, err)
	return total.N >= int64(n)
}

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
				w := newWire(t, b.URL)
				queue := testkit.Name(t, "work")
				w.deleteLater(queue, queue+".failed", queue+".wait", queue+".retry")
				var mu sync.Mutex
				var seen []*reprise.Delivery
				worker, err := reprise.NewWorker(w.client, reprise.WorkerConfig{
					Queue: queue, Strategy: s.strategy, Policy: reprise.Policy{MaxAttempts: attempts, Backoff: backoff.Fixed(10 * time.Millisecond)},
					Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, m)
						return fmt.Errorf("error %d", m.Attempt)
					}),
				})
				must(t, err)
				w.runs(worker.Run)
				w.ingest(w.client, queue+".failed")
				testkit.Eventually(t, longest, func() error {
					return w.client.Publish(t.Context(), &reprise.Message{
						RoutingKey: queue, MessageID: "m", Headers: map[string]any{"own": int32(7)},
						Body: []byte("{}"), ContentType: "application/json", Priority: 2, Type: "order",
					})
				})
				testkit.Eventually(t, longest, func() bool { return len(w.archived()) == 1 })
				first := w.archived()[0]
				if first.Queue != queue || first.Attempts != attempts || first.Error != fmt.Sprint("error ", attempts) || first.State != Failed {
					t.Errorf("archived message: got %+v, want state failed in queue %s after %d attempts", first, queue, attempts)
				}
				r, err := w.archive.BeginReplay(t.Context(), Plan{Filter: Filter{All: true}}, "test")
				must(t, err)
				re, err := NewReplayer(w.client, w.archive, ReplayerConfig{})
				must(t, err)
				r, err = re.Finish(t.Context(), r.ID)
				if err != nil || r.State == ReplayStopped || r.Sent != 1 {
					t.Fatalf("Finish: got %+v, %v, want 1 sent message, not stopped", r, err)
				}
				testkit.Eventually(t, longest, func() bool { return len(w.archived()) == 2 })
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
				again := w.archived()[1]
				if again.Back != r.ID || again.BackOf != first.ID || again.Group == 0 || again.Attempts != attempts {
					t.Errorf("message that failed again: got %+v, want back from replay %d as message %d, after %d attempts", again, r.ID, first.ID, attempts)
				}
				if first, err := w.archive.Get(t.Context(), first.ID); err != nil || first.State != Replayed {
					t.Errorf("replayed message: got %+v, %v, want state replayed", first, err)
				}
			})
		})
	}
}

// If the connection of an Ingest fails at any frame, each message is archived once.
func TestIngestSurvivesConnectionLossAtAnyFrame(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newWire(t, b.URL)
		queue := w.queue("failed", nil)
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
				proxied := connect(t, proxy.URL())
				proxy.CutBeforeFrame(direction, frame)
				stop := w.ingest(proxied, queue)
				for range 6 {
					w.publish(queue, nil, fmt.Sprint(published))
					published++
				}
				testkit.Eventually(t, longest, func() bool { return w.hasArchived(published) })
				stop()
				proxy.Cut()
				// The broker redelivers messages whose acknowledgement it did not receive.
				stop = w.ingest(w.client, queue)
				testkit.Eventually(t, longest, func() bool { return w.depth(queue) == 0 })
				stop()
				if kept := len(w.archived()); kept != published {
					t.Fatalf("cut before frame %d %v: got %d archived messages, want %d", frame, direction, kept, published)
				}
			}
		}
	})
}

// An Ingest archives messages that another program or the broker has moved to a failed queue, with their history.
func TestIngestArchivesDeadLetters(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newWire(t, b.URL)
		parked := w.queue("parked", nil)
		work := w.queue("work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": parked})
		must(t, w.client.Publish(t.Context(), &reprise.Message{RoutingKey: work, MessageID: "expired", Expiration: time.Millisecond}))
		testkit.Eventually(t, longest, func() bool { return w.depth(parked) == 1 })
		w.publish(work, nil, "rejected")
		var d amqp.Delivery
		testkit.Eventually(t, longest, func() error {
			got, ok, err := w.raw.Get(work, false)
			if d = got; !ok {
				return errors.Join(err, errors.New("queue is empty"))
			}
			return err
		})
		must(t, d.Reject(false))
		w.ingest(w.client, parked)
		testkit.Eventually(t, longest, func() bool { return len(w.archived()) == 2 })
		for _, m := range w.archived() {
			why := "dead-lettered by the broker: " + m.Properties.MessageID + " in " + work
			if m.Queue != work || m.FailedQueue != parked || m.Error != why || m.Exchange != "" || m.RoutingKey != work || m.LastFailed.IsZero() {
				t.Errorf("archived message: got %+v, want queue %s, failed queue %s, error %q", m, work, parked, why)
			}
		}
		r, err := w.archive.BeginReplay(t.Context(), Plan{Filter: Filter{All: true}}, "test")
		must(t, err)
		re, err := NewReplayer(w.client, w.archive, ReplayerConfig{})
		must(t, err)
		_, err = re.Finish(t.Context(), r.ID)
		must(t, err)
		for _, d := range w.take(work) {
			if len(d.Headers) > 2 || d.Headers["x-death"] != nil || d.Expiration != "" {
				t.Errorf("replayed message: got headers %v, want at most 2, without x-death", d.Headers)
			}
		}
	})
}
