package background

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
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/store"
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
func newCollecting(t *testing.T, url string) (*archivetest.Wire, *Collector[protocol.Outcome], *records) {
	t.Helper()
	w, logged := archivetest.NewWire(t, url), new(records)
	read := func(m *reprise.Delivery) (protocol.Outcome, bool) { return protocol.ReadOutcome(m.Headers) }
	c := NewCollector(w.Client, slog.New(logged), w.Archive.OutcomeTopology(), "outcomes wait", read, w.Archive.NoteOutcomes)
	w.DeleteLater(c.queue)
	return w, c, logged
}

// occupy replaces the queue of a collector with a queue that conflicts with its declaration.
func occupy(w *archivetest.Wire, queue string) {
	w.Helper()
	_, err := w.Raw.QueueDelete(queue, false, false, false)
	archivetest.Must(w.T, err)
	_, err = w.Raw.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-max-length": int64(7)})
	archivetest.Must(w.T, err)
}

// If a declaration fails, the error names the queue.
func TestCollectorNamesTheQueueItCannotDeclare(t *testing.T) {
	w, _, _ := newCollecting(t, testkit.Embedded(t).URL)
	c := NewCollector[protocol.RetryReport](w.Client, nil, w.Archive.RetriesTopology(), "", nil, nil)
	w.DeleteLater(c.queue)
	occupy(w, c.queue)
	if err := c.Declare(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "cannot declare queue "+c.queue+": ") {
		t.Error(err)
	}
}

// A message that is not a report is logged with the reason.
func TestCollectorLogsWhyItIgnoresAReport(t *testing.T) {
	w, c, logged := newCollecting(t, testkit.Embedded(t).URL)
	w.Runs(func(ctx context.Context) error { c.Collect(ctx); return nil })
	archivetest.Must(t, w.Client.Declare(t.Context(), c.topology))
	archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{RoutingKey: c.queue, MessageID: "17"}))
	testkit.Eventually(t, archivetest.Longest, func() error {
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
		results := []error{store.ErrUnavailable, store.ErrUnavailable, store.ErrUnavailable, errors.New("deadlock detected"), nil}
		c := &Collector[int]{log: slog.New(slog.DiscardHandler), note: func(context.Context, []int) error {
			err := results[0]
			results = results[1:]
			return err
		}}
		archivetest.Must(t, c.noteAll(t.Context(), []*report[int]{{noted: make(chan struct{})}}))
		if len(results) > 0 {
			t.Errorf("the report was dropped, %d attempts before its success", len(results))
		}
	})
}
