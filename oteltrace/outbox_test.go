package oteltrace_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/oteltrace"
	"github.com/reprisemq/reprise/outbox"
)

// A message of an outbox keeps the trace context of its insertion, to which the span of the relay is linked. A message that is inserted
// without a span starts a trace.
func TestOutbox(t *testing.T) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=busy_timeout(30000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r := newRecorder()
	box, err := outbox.Open(t.Context(), db, outbox.Config{Dialect: outbox.SQLite, BeforeInsert: oteltrace.BeforeInsert(r.config)})
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]any{"tenant": "acme"}
	if err := box.Every(outbox.Entry{Name: "nightly", Spec: "30 2 * * *", Message: reprise.Message{RoutingKey: "reports", Headers: shared}}); err != nil || len(r.Ended()) > 0 {
		t.Fatalf("Every: got %v and %d spans, want none", err, len(r.Ended()))
	}
	insert := func(ctx context.Context, id string, headers map[string]any) {
		t.Helper()
		if err := box.Schedule(ctx, &outbox.Message{Message: reprise.Message{RoutingKey: "orders", MessageID: id, Headers: headers}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, parent := r.provider.Tracer("").Start(t.Context(), "checkout")
	insert(ctx, "in a span", shared)
	insert(t.Context(), "alone", nil)
	origin, header := elsewhere(t)
	insert(t.Context(), "forwarded", map[string]any{"traceparent": header})
	spans := r.Ended()
	if len(spans) != 2 || len(shared) != 1 {
		t.Fatalf("got %d spans and the headers %v, want 2 spans and unchanged headers", len(spans), shared)
	}
	for i, want := range []trace.SpanID{parent.SpanContext().SpanID(), {}} {
		if s := spans[i]; s.Name() != "create orders" || s.SpanKind() != trace.SpanKindProducer || s.Parent().SpanID() != want || attributes(s.Attributes())["messaging.operation.type"] != "create" {
			t.Errorf("span %d: got %s, %s, parent %s, %v", i, s.Name(), s.SpanKind(), s.Parent().SpanID(), s.Attributes())
		}
	}

	client := make(chan []*reprise.Message, 100)
	relay, err := outbox.NewRelay(box, oteltrace.RelayPublisher(r.config, func(_ context.Context, messages []*reprise.Message) error {
		client <- messages
		return nil
	}), outbox.RelayConfig{Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	testkit.Eventually(t, time.Minute, func() bool { return box.Occur(t.Context(), "default", "nightly") == nil })
	headers := map[string]string{}
	for len(headers) < 4 {
		for _, m := range <-client {
			id := m.MessageID
			if m.RoutingKey == "reports" {
				id = "nightly"
			}
			headers[id] = fmt.Sprint(m.Headers["traceparent"])
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	context := func(s trace.SpanContext) string { return fmt.Sprintf("00-%s-%s-01", s.TraceID(), s.SpanID()) }
	wanted := map[string]trace.SpanContext{"in a span": spans[0].SpanContext(), "alone": spans[1].SpanContext(), "forwarded": origin}
	linked := map[trace.SpanID]bool{}
	for _, s := range r.Ended()[2:] {
		if s.Parent().IsValid() {
			t.Errorf("%s has the parent %v, want none", s.Name(), s.Parent())
		}
		if s.Name() == "create reports" {
			wanted["nightly"] = s.SpanContext()
			continue
		}
		for _, l := range s.Links() {
			linked[l.SpanContext.SpanID()] = true
		}
		if count := attributes(s.Attributes())["messaging.batch.message_count"]; count == "" || s.SpanKind() != trace.SpanKindProducer {
			t.Errorf("%s: got %s, %v", s.Name(), s.SpanKind(), s.Attributes())
		}
	}
	for id, want := range wanted {
		if headers[id] != context(want) || !linked[want.SpanID()] {
			t.Errorf("message %s: got traceparent %s, linked %v, want %s, true", id, headers[id], linked[want.SpanID()], context(want))
		}
	}
	if len(wanted) != 4 {
		t.Errorf("the periodic message has no span: %v", r.Ended())
	}
}

// A message that was inserted without BeforeInsert is linked to the span of the relay. A handler can insert the headers of the message
// that it handles; the attempts of the inserted message do not continue the attempts of the handled message.
func TestRelayPublisherHeaders(t *testing.T) {
	r := newRecorder()
	m := &reprise.Message{RoutingKey: "orders"}
	_, header := elsewhere(t)
	handled := &reprise.Message{RoutingKey: "orders", Headers: map[string]any{"traceparent": header, oteltrace.HeaderPrevious: header}}
	var got []*reprise.Message
	publish := oteltrace.RelayPublisher(r.config, func(_ context.Context, messages []*reprise.Message) error {
		got = messages
		return nil
	})
	if err := publish.PublishBatch(t.Context(), []*reprise.Message{m, handled}); err != nil {
		t.Fatal(err)
	}
	s := r.only(t)
	if header, want := got[0].Headers["traceparent"], fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID()); header != want {
		t.Errorf("traceparent: got %v, want %s", header, want)
	}
	if h := got[1].Headers; len(h) != 1 || h["traceparent"] != header || len(handled.Headers) != 2 {
		t.Errorf("headers of the handled message: got %v, want only traceparent, and unchanged headers of the original", h)
	}
}
