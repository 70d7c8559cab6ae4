package archivetest

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Longest is the maximum time for which tests wait for an expected event. No test depends on the exact value.
const Longest = 2 * time.Minute

// Wire is a broker and an archive, in real time.
type Wire struct {
	*testing.T
	URL     string
	Client  *reprise.Client
	Raw     *amqp.Channel
	Archive *store.Archive
}

func NewWire(t *testing.T, url string) *Wire {
	t.Helper()
	return NewWireAt(t, url, nil)
}

// NewWireAt returns a wire whose archive uses the given clock.
func NewWireAt(t *testing.T, url string, clock func() time.Time) *Wire {
	t.Helper()
	w := &Wire{T: t, URL: url, Client: Connect(t, url)}
	conn, err := amqp.Dial(url)
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	w.Raw, err = conn.Channel()
	Must(t, err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	Must(t, err)
	t.Cleanup(func() { Must(t, db.Close()) })
	w.Archive, err = store.Open(t.Context(), db, store.Config{Dialect: store.SQLite, Clock: clock})
	Must(t, err)
	return w
}

// Queue declares a queue for the duration of the test.
func (w *Wire) Queue(prefix string, args amqp.Table) string {
	w.Helper()
	name := testkit.Name(w.T, prefix)
	_, err := w.Raw.QueueDeclare(name, true, false, false, false, args)
	Must(w.T, err)
	w.DeleteLater(name)
	return name
}

func (w *Wire) DeleteLater(names ...string) {
	w.Cleanup(func() {
		for _, name := range names {
			_, _ = w.Raw.QueueDelete(name, false, false, false)
		}
	})
}

func (w *Wire) Publish(queue string, headers map[string]any, bodies ...string) {
	w.Helper()
	for _, body := range bodies {
		Must(w.T, w.Client.Publish(w.Context(), &reprise.Message{RoutingKey: queue, Headers: headers, MessageID: body, Body: []byte(body)}))
	}
}

// Take takes all messages from a queue.
func (w *Wire) Take(queue string) (all []amqp.Delivery) {
	w.Helper()
	for {
		d, ok, err := w.Raw.Get(queue, true)
		Must(w.T, err)
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func (w *Wire) Depth(queue string) int {
	w.Helper()
	n, err := w.Client.Depth(w.Context(), queue)
	Must(w.T, err)
	return n
}

// Runs calls run in a goroutine, and cancels it when the test ends or the caller calls stop.
func (w *Wire) Runs(run func(context.Context) error) (stop func()) {
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

// Archived returns the archived messages, by ID.
func (w *Wire) Archived() (all []*failed.Message) {
	w.Helper()
	for m, err := range w.Archive.Each(w.Context(), failed.Filter{}) {
		Must(w.T, err)
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *failed.Message) int { return int(a.ID - b.ID) })
	return all
}

// HasArchived reports whether the archive has at least n messages.
func (w *Wire) HasArchived(n int) bool {
	w.Helper()
	total, err := w.Archive.Count(w.Context(), failed.Filter{})
	Must(w.T, err)
	return total.N >= int64(n)
}

func Connect(t *testing.T, url string) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Longest)
	defer cancel()
	c, err := reprise.Dial(ctx, url, &reprise.Config{Reconnect: backoff.Exponential{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond}})
	Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Longest)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// PublisherFunc is a publisher that passes each message to a function instead of a broker, and returns its errors.
type PublisherFunc func(m *reprise.Message) error

func (f PublisherFunc) PublishBatch(_ context.Context, messages []*reprise.Message) error {
	failed := &reprise.BatchError{Messages: len(messages)}
	for i, m := range messages {
		if err := f(m); err != nil {
			failed.Failed = append(failed.Failed, &reprise.MessageError{Index: i, MessageID: m.MessageID, Err: err})
		}
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}
