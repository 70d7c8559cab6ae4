package failed

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
)

// records is a slog.Handler that keeps the records as text: the message, and its attributes.
type records struct {
	mu  sync.Mutex
	all []string
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }

func (r *records) Handle(_ context.Context, record slog.Record) error {
	text := record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, text)
	return nil
}

// with returns the records with the given message.
func (r *records) with(message string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.all {
		if strings.HasPrefix(text, message) {
			all = append(all, text)
		}
	}
	return all
}

// newCollecting returns a new wire, and a collector of its outcome reports that logs to the returned records.
func newCollecting(t *testing.T, url string) (*wire, *collector[protocol.Outcome], *records) {
	t.Helper()
	w, logged := newWire(t, url), new(records)
	c := newOutcomes(w.client, w.archive, slog.New(logged))
	w.deleteLater(c.queue)
	return w, c, logged
}

// occupy replaces the queue of a collector with a queue that conflicts with its declaration.
func (w *wire) occupy(queue string) {
	w.Helper()
	_, err := w.raw.QueueDelete(queue, false, false, false)
	must(w.T, err)
	_, err = w.raw.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-max-length": int64(7)})
	must(w.T, err)
}

// If a declaration fails, the error names the queue.
func TestCollectorNamesTheQueueItCannotDeclare(t *testing.T) {
	w, _, _ := newCollecting(t, testkit.Embedded(t).URL)
	c := &collector[protocol.RetryReport]{client: w.client, queue: w.archive.retriesTopology().Queues[0].Name, topology: w.archive.retriesTopology(), declaring: make(chan struct{}, 1)}
	w.deleteLater(c.queue)
	w.occupy(c.queue)
	if err := c.declare(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "failed: cannot declare queue "+c.queue+": ") {
		t.Error(err)
	}
}

// A message that is not a report is logged with the reason.
func TestCollectorLogsWhyItIgnoresAReport(t *testing.T) {
	w, c, logged := newCollecting(t, testkit.Embedded(t).URL)
	w.runs(func(ctx context.Context) error { c.collect(ctx); return nil })
	must(t, w.client.Declare(t.Context(), c.topology))
	must(t, w.client.Publish(t.Context(), &reprise.Message{RoutingKey: c.queue, MessageID: "17"}))
	testkit.Eventually(t, longest, func() error {
		all := logged.with("report ignored")
		if len(all) != 1 {
			return errors.New("want exactly one log record")
		}
		if want := "report ignored queue=" + c.queue + " message_id=17 error=message is not a report"; all[0] != want {
			t.Errorf("got %q, want %q", all[0], want)
		}
		return nil
	})
}

// An outage of the database does not count as refusals of a report.
func TestCollectorKeepsReportThatWasRefusedAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := []error{ErrUnavailable, ErrUnavailable, ErrUnavailable, errors.New("deadlock detected"), nil}
		c := &collector[int]{log: slog.New(slog.DiscardHandler), note: func(context.Context, []int) error {
			err := results[0]
			results = results[1:]
			return err
		}}
		must(t, c.noteAll(t.Context(), []*report[int]{{noted: make(chan struct{})}}))
		if len(results) > 0 {
			t.Errorf("the report was dropped, %d attempts before its success", len(results))
		}
	})
}
