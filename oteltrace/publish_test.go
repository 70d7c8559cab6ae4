package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/oteltrace"
)

// sent simulates a Client, and records the published messages.
type sent struct {
	messages []reprise.Message
	err      error
}

func (s *sent) Publish(_ context.Context, m *reprise.Message) error {
	if m.MessageID == "" {
		m.MessageID = fmt.Sprint("random ", len(s.messages)+1)
	}
	s.messages = append(s.messages, *m)
	return s.err
}

func TestPublisherCreatesSpan(t *testing.T) {
	r := newRecorder()
	var client sent
	ctx, parent := r.provider.Tracer("").Start(t.Context(), "checkout")
	own := map[string]any{"tenant": "acme"}
	m := &reprise.Message{Exchange: "shop", RoutingKey: "order.placed", CorrelationID: "cart 2", Headers: own, Body: []byte("17")}
	if err := oteltrace.Publisher(r.config, client.Publish)(ctx, m); err != nil {
		t.Fatal(err)
	}
	s := r.only(t)
	if s.Name() != "publish shop" || s.SpanKind() != trace.SpanKindProducer || s.Parent().SpanID() != parent.SpanContext().SpanID() || s.Status().Code != codes.Unset {
		t.Errorf("span: got %s, %s, parent %v, %v, want publish shop, producer, parent %v, unset", s.Name(), s.SpanKind(), s.Parent(), s.Status(), parent.SpanContext())
	}
	want := map[string]string{
		"messaging.system":                           "rabbitmq",
		"messaging.operation.name":                   "publish",
		"messaging.operation.type":                   "send",
		"messaging.destination.name":                 "shop:order.placed",
		"messaging.rabbitmq.destination.routing_key": "order.placed",
		"messaging.message.id":                       "random 1",
		"messaging.message.conversation_id":          "cart 2",
	}
	if diff := cmp.Diff(want, attributes(s.Attributes())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	header := fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID())
	if diff := cmp.Diff(map[string]any{"tenant": "acme", "traceparent": header}, client.messages[0].Headers); diff != "" {
		t.Errorf("headers, -want +got:\n%s", diff)
	}
	if len(own) != 1 || m.MessageID != "random 1" || string(client.messages[0].Body) != "17" {
		t.Errorf("message: got %+v, want only the header tenant, ID random 1 and body 17", m)
	}
}

func TestPublisherNamesSpanAndDestination(t *testing.T) {
	for _, tc := range []struct{ exchange, key, name, destination string }{
		{"", "orders", "publish orders", "orders"},
		{"shop", "order.17.placed", "publish shop", "shop:order.17.placed"},
		{"shop", "", "publish shop", "shop"},
		{"", "", "publish amq.default", "amq.default"},
	} {
		r := newRecorder()
		_ = oteltrace.Publisher(r.config, new(sent).Publish)(t.Context(), &reprise.Message{Exchange: tc.exchange, RoutingKey: tc.key})
		if s := r.only(t); s.Name() != tc.name || attributes(s.Attributes())["messaging.destination.name"] != tc.destination {
			t.Errorf("%q %q: got %s with %v, want %s to %s", tc.exchange, tc.key, s.Name(), s.Attributes(), tc.name, tc.destination)
		}
	}
}

func TestPublisherRecordsErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&reprise.UnroutableError{RoutingKey: "orders", Code: 312, Text: "NO_ROUTE"}, "unroutable"},
		{fmt.Errorf("order 17: %w", reprise.ErrNacked), "nacked"},
		{reprise.ErrUnconfirmed, "unconfirmed"},
		{reprise.ErrInvalidMessage, "invalid"},
		{context.Canceled, "other"},
	} {
		r := newRecorder()
		client := sent{err: tc.err}
		m := &reprise.Message{RoutingKey: "orders"}
		if err := oteltrace.Publisher(r.config, client.Publish)(t.Context(), m); err != tc.err {
			t.Errorf("got %v, want %v", err, tc.err)
		}
		if m.MessageID != "random 1" {
			t.Errorf("message ID: got %q, want %q", m.MessageID, "random 1")
		}
		s := r.only(t)
		if s.Status().Code != codes.Error || s.Status().Description != tc.err.Error() || attributes(s.Attributes())["error.type"] != tc.want {
			t.Errorf("got status %+v and attributes %v, want Error and error.type %s", s.Status(), s.Attributes(), tc.want)
		}
	}
}

// If a program forwards a message, the header contains the span of the second publish. This span is linked to the span of
// the first publish.
func TestPublisherLinksForwardedMessages(t *testing.T) {
	r := newRecorder()
	var client sent
	origin, header := elsewhere(t)
	received := map[string]any{"traceparent": header, "tracestate": "vendor=1", oteltrace.HeaderPrevious: header, "x-previous-traceparent": header, "own": "kept"}
	before := maps.Clone(received)
	if err := oteltrace.Publisher(r.config, client.Publish)(t.Context(), &reprise.Message{RoutingKey: "next", Headers: received}); err != nil {
		t.Fatal(err)
	}
	s := r.only(t)
	if diff := cmp.Diff([]string{producer(origin)}, linked(s)); diff != "" {
		t.Errorf("links, -want +got:\n%s", diff)
	}
	want := map[string]any{"traceparent": fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID()), "own": "kept"}
	if diff := cmp.Diff(want, client.messages[0].Headers); diff != "" {
		t.Errorf("headers, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, received); diff != "" {
		t.Errorf("headers of the caller changed, -want +got:\n%s", diff)
	}
}

func TestBatchPublisherCreatesOneSpan(t *testing.T) {
	r := newRecorder()
	origin, header := elsewhere(t)
	var client sent
	publish := oteltrace.BatchPublisher(r.config, func(ctx context.Context, messages []*reprise.Message) error {
		for _, m := range messages {
			_ = client.Publish(ctx, m)
		}
		return &reprise.BatchError{Messages: 2, Failed: []*reprise.MessageError{{Index: 1, Err: reprise.ErrNacked}}}
	})
	batch := []*reprise.Message{
		{RoutingKey: "orders", CorrelationID: "cart 1"},
		{RoutingKey: "orders", CorrelationID: "cart 2", Headers: map[string]any{"traceparent": header}},
	}
	if err := publish(t.Context(), batch); !errors.Is(err, reprise.ErrNacked) {
		t.Errorf("got %v, want ErrNacked", err)
	}
	s := r.only(t)
	want := map[string]string{
		"messaging.system":                           "rabbitmq",
		"messaging.operation.name":                   "publish",
		"messaging.operation.type":                   "send",
		"messaging.destination.name":                 "orders",
		"messaging.rabbitmq.destination.routing_key": "orders",
		"messaging.batch.message_count":              "2",
		"error.type":                                 "nacked",
	}
	if diff := cmp.Diff(want, attributes(s.Attributes())); diff != "" || s.Name() != "publish orders" {
		t.Errorf("%s, -want +got:\n%s", s.Name(), diff)
	}
	if diff := cmp.Diff([]string{producer(origin)}, linked(s)); diff != "" {
		t.Errorf("links, -want +got:\n%s", diff)
	}
	for i, m := range client.messages {
		if got, want := m.Headers["traceparent"], fmt.Sprintf("00-%s-%s-01", s.SpanContext().TraceID(), s.SpanContext().SpanID()); got != want {
			t.Errorf("traceparent of message %d: got %v, want %s", i, got, want)
		}
		if batch[i].MessageID != m.MessageID || m.MessageID == "" {
			t.Errorf("ID of message %d: got %q, want the published ID %q", i, batch[i].MessageID, m.MessageID)
		}
	}
}

func TestBatchPublisherOmitsAmbiguousDestination(t *testing.T) {
	for name, batch := range map[string][]*reprise.Message{
		"publish shop": {{Exchange: "shop", RoutingKey: "placed"}},
		"publish":      {{Exchange: "shop", RoutingKey: "placed"}, {Exchange: "shop", RoutingKey: "paid"}},
	} {
		r := newRecorder()
		publish := oteltrace.BatchPublisher(r.config, func(context.Context, []*reprise.Message) error { return nil })
		if err := publish(t.Context(), batch); err != nil {
			t.Error(err)
		}
		s := r.only(t)
		_, found := attributes(s.Attributes())["messaging.destination.name"]
		if s.Name() != name || found != (len(batch) == 1) {
			t.Errorf("span: got %s, want %s; attributes %v", s.Name(), name, s.Attributes())
		}
	}
}

// Publishers pass nil messages and empty batches to the Client.
func TestPublishersRejectNilMessages(t *testing.T) {
	r := newRecorder()
	b := testkit.Embedded(t)
	client := dial(t, b.URL, nil, nil)
	if err := oteltrace.Publisher(r.config, client.Publish)(t.Context(), nil); !errors.Is(err, reprise.ErrInvalidMessage) {
		t.Errorf("nil: got %v, want ErrInvalidMessage", err)
	}
	batch := oteltrace.BatchPublisher(r.config, client.PublishBatch)
	if err := batch(t.Context(), []*reprise.Message{nil}); !errors.Is(err, reprise.ErrInvalidMessage) {
		t.Errorf("nil in a batch: got %v, want ErrInvalidMessage", err)
	}
	if err := batch(t.Context(), nil); err != nil {
		t.Errorf("empty batch: got %v, want nil", err)
	}
}

func TestPublisherWithoutSDKKeepsContext(t *testing.T) {
	_, header := elsewhere(t)
	var client sent
	publish := oteltrace.Publisher(oteltrace.Config{TracerProvider: noop.NewTracerProvider()}, client.Publish)
	if err := publish(t.Context(), &reprise.Message{RoutingKey: "orders", Headers: map[string]any{"traceparent": header}}); err != nil {
		t.Fatal(err)
	}
	if got := client.messages[0].Headers["traceparent"]; got != header {
		t.Errorf("traceparent: got %v, want %s", got, header)
	}
}

func TestPublisherInjectsBaggage(t *testing.T) {
	r := newRecorder()
	r.config.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	member, err := baggage.NewMember("tenant", "acme")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	var client sent
	_ = oteltrace.Publisher(r.config, client.Publish)(baggage.ContextWithBaggage(t.Context(), bag), &reprise.Message{RoutingKey: "orders"})
	if got := client.messages[0].Headers["baggage"]; got != "tenant=acme" {
		t.Errorf("header baggage: got %v, want tenant=acme", got)
	}
}

// If a batch contains a message twice, both copies have the same ID, so that handlers can detect the duplicate.
func TestBatchPublisherKeepsIDOfRepeatedMessage(t *testing.T) {
	r := newRecorder()
	var client sent
	m := &reprise.Message{RoutingKey: "q"}
	err := oteltrace.BatchPublisher(r.config, func(ctx context.Context, messages []*reprise.Message) error {
		for _, m := range messages {
			if err := client.Publish(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})(t.Context(), []*reprise.Message{m, {RoutingKey: "q"}, m})
	if err != nil {
		t.Fatal(err)
	}
	if got := client.messages; got[0].MessageID != "random 1" || got[1].MessageID != "random 2" || got[2].MessageID != "random 1" || m.MessageID != "random 1" {
		t.Errorf("published IDs: got %q, %q, %q, want random 1, random 2, random 1; ID of the message: got %q, want random 1",
			got[0].MessageID, got[1].MessageID, got[2].MessageID, m.MessageID)
	}
}
