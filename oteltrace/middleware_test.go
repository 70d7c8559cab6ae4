package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/oteltrace"
)

func TestMiddlewareStartsTracePerAttempt(t *testing.T) {
	for _, child := range []bool{false, true} {
		t.Run(fmt.Sprint("child of producer ", child), func(t *testing.T) {
			r := newRecorder()
			r.config.ChildOfProducer = child
			origin, header := elsewhere(t)
			headers := map[string]any{"traceparent": header}
			for n := 1; n <= 3; n++ {
				err := r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: maps.Clone(headers)}, Queue: "orders", Attempt: n}, returning(errTest))
				headers = copied(headers, err)
			}
			spans := r.Ended()
			for i, s := range spans {
				want := []string{producer(origin)}
				if i > 0 {
					want = append(want, previous(spans[i-1].SpanContext()))
				}
				if diff := cmp.Diff(want, linked(s)); diff != "" {
					t.Errorf("attempt %d, links, -want +got:\n%s", i+1, diff)
				}
				switch {
				case child && i == 0:
					if s.Parent().SpanID() != origin.SpanID() || s.SpanContext().TraceID() != origin.TraceID() {
						t.Errorf("parent of attempt 1: got %v, want %v", s.Parent(), origin)
					}
				case s.Parent().IsValid(), s.SpanContext().TraceID() == origin.TraceID():
					t.Errorf("attempt %d must start a trace without a parent: got trace %s and parent %s", i+1, s.SpanContext().TraceID(), s.Parent().SpanID())
				}
			}
		})
	}
}

func TestMiddlewareSetsAttributes(t *testing.T) {
	r := newRecorder()
	err := r.attempt(&reprise.Delivery{Message: reprise.Message{Exchange: "shop", RoutingKey: "order.placed", MessageID: "id 1", CorrelationID: "cart 2"}, Queue: "orders", Attempt: 3, Redelivered: true}, returning(nil))
	if err != nil {
		t.Error(err)
	}
	s := r.only(t)
	if s.Name() != "process orders" || s.SpanKind() != trace.SpanKindConsumer {
		t.Errorf("span: got %s, %s, want process orders, consumer", s.Name(), s.SpanKind())
	}
	want := map[string]string{
		"messaging.system":                           "rabbitmq",
		"messaging.operation.name":                   "process",
		"messaging.operation.type":                   "process",
		"messaging.destination.name":                 "shop:order.placed:orders",
		"messaging.rabbitmq.destination.routing_key": "order.placed",
		"messaging.message.id":                       "id 1",
		"messaging.message.conversation_id":          "cart 2",
		"reprise.attempt":                            "3",
		"reprise.redelivered":                        "true",
		"reprise.outcome":                            "done",
	}
	if diff := cmp.Diff(want, attributes(s.Attributes())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s.InstrumentationScope().SchemaURL != "https://opentelemetry.io/schemas/1.43.0" {
		t.Errorf("schema URL: got %s, want version 1.43.0", s.InstrumentationScope().SchemaURL)
	}
}

func TestMiddlewareNamesDestination(t *testing.T) {
	for _, tc := range []struct{ exchange, key, queue, want string }{
		{"", "orders", "orders", "orders"},
		{"shop", "orders", "orders", "shop:orders"},
		{"shop", "placed", "orders", "shop:placed:orders"},
		{"shop", "", "orders", "shop:orders"},
		{"", "placed", "orders", "placed:orders"},
		{"shop", "shop", "shop", "shop:shop"},
	} {
		r := newRecorder()
		_ = r.attempt(&reprise.Delivery{Message: reprise.Message{Exchange: tc.exchange, RoutingKey: tc.key}, Queue: tc.queue, Attempt: 1}, returning(nil))
		if got := attributes(r.only(t).Attributes())["messaging.destination.name"]; got != tc.want {
			t.Errorf("%q %q %q: got %q, want %q", tc.exchange, tc.key, tc.queue, got, tc.want)
		}
	}
}

// A publisher can set any header. Invalid headers must not make an attempt fail.
func TestMiddlewareIgnoresInvalidHeaders(t *testing.T) {
	_, good := elsewhere(t)
	for _, tc := range []struct {
		name  string
		value any
		links int
	}{
		{"text", good, 1},
		{"bytes", []byte(good), 1},
		{"later version", "cc" + good[2:] + "-more-fields", 1},
		{"empty", "", 0},
		{"short", good[:len(good)-1], 0},
		{"long", good + "-00", 0},
		{"upper case", strings.ToUpper(good), 0},
		{"no span", "00-00000000000000000000000000000000-0000000000000000-01", 0},
		{"version ff", "ff" + good[2:], 0},
		{"not text", "\xff\xfe\x00", 0},
		{"nil", nil, 0},
		{"a number", int64(1), 0},
		{"a table", map[string]any{"traceparent": good}, 0},
		{"a list", []any{good}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, header := range []string{"traceparent", oteltrace.HeaderPrevious, "x-previous-traceparent"} {
				r := newRecorder()
				called := false
				err := r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: map[string]any{header: tc.value}}, Queue: "orders", Attempt: 1},
					func(context.Context, *reprise.Delivery) error { called = true; return errTest })
				if !called || !errors.Is(err, errTest) {
					t.Errorf("%s: got called %t and error %v, want true and errTest", header, called, err)
				}
				if s := r.only(t); len(s.Links()) != tc.links || s.Parent().IsValid() {
					t.Errorf("%s: got links %q and parent %v, want %d links and no parent", header, linked(s), s.Parent(), tc.links)
				}
			}
		})
	}
	t.Run("no headers", func(t *testing.T) {
		r := newRecorder()
		if err := r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(nil)); err != nil {
			t.Error(err)
		}
		if got := linked(r.only(t)); len(got) != 0 {
			t.Errorf("links without headers: got %q, want none", got)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	_, good := elsewhere(f)
	f.Add(good, "", good)
	f.Add(good, "a=b,c=d", "ff"+good)
	f.Add("00-", "=", strings.Repeat("-", 60))
	f.Fuzz(func(t *testing.T, traceparent, tracestate, previous string) {
		r := newRecorder()
		err := r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: map[string]any{
			"traceparent": traceparent, "tracestate": tracestate, oteltrace.HeaderPrevious: previous,
		}}, Queue: "orders", Attempt: 2}, returning(errTest))
		s := r.only(t)
		next := copied(nil, err)[oteltrace.HeaderPrevious]
		if id := s.SpanContext().SpanID().String(); !errors.Is(err, errTest) || !strings.Contains(fmt.Sprint(next), id) {
			t.Errorf("error %v: next attempt links to %v, want %s", err, next, id)
		}
		for _, l := range s.Links() {
			if !l.SpanContext.IsValid() {
				t.Errorf("span context of a link must be valid: got %v", l.SpanContext)
			}
		}
	})
}

// A handler can forward the headers that it receives, so they must match the headers of the published message.
func TestMiddlewareHidesInternalHeaders(t *testing.T) {
	r := newRecorder()
	_, header := elsewhere(t)
	_ = r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: map[string]any{
		"traceparent": header, oteltrace.HeaderPrevious: header, "x-previous-traceparent": header, "own": "kept",
	}}, Queue: "orders", Attempt: 2}, func(_ context.Context, m *reprise.Delivery) error {
		if diff := cmp.Diff(map[string]any{"traceparent": header, "own": "kept"}, m.Headers); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})
}

func TestHandlerSpansAreChildren(t *testing.T) {
	r := newRecorder()
	_ = r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, func(ctx context.Context, _ *reprise.Delivery) error {
		_, span := r.provider.Tracer("").Start(ctx, "charge")
		span.End()
		return nil
	})
	spans := r.Ended()
	if len(spans) != 2 || spans[0].Parent().SpanID() != spans[1].SpanContext().SpanID() {
		t.Errorf("spans: got %v, want the handler's span as a child of the attempt", spans)
	}
}

// The context of Worker.Run may contain the span of the code that starts the worker. Attempts are not children of this span.
func TestMiddlewareIgnoresParentOfContext(t *testing.T) {
	r := newRecorder()
	ctx, main := r.provider.Tracer("").Start(t.Context(), "main")
	_ = oteltrace.Middleware(r.config)(reprise.HandlerFunc(returning(nil))).Handle(ctx, &reprise.Delivery{Queue: "orders", Attempt: 1})
	if s := r.only(t); s.Parent().IsValid() || len(s.Links()) != 0 || s.SpanContext().TraceID() == main.SpanContext().TraceID() {
		t.Errorf("got parent %v and links %q, want none", s.Parent(), linked(s))
	}
}

// A parked message that is replayed with all headers starts at attempt 1 again, and links to the last attempt before.
func TestReplayedAttemptLinksToPreviousAttempt(t *testing.T) {
	r := newRecorder()
	r.config.ChildOfProducer = true
	origin, header := elsewhere(t)
	headers := copied(map[string]any{"traceparent": header}, r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(errTest)))
	last := r.only(t)
	_ = r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: headers}, Queue: "orders", Attempt: 1}, returning(nil))
	s := r.Ended()[1]
	if diff := cmp.Diff([]string{producer(origin), previous(last.SpanContext())}, linked(s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s.Parent().IsValid() {
		t.Error("the first attempt after a replay is a child of the publisher's span")
	}
}

func TestMiddlewareReturnsPanicError(t *testing.T) {
	r := newRecorder()
	err := r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, func(context.Context, *reprise.Delivery) error { panicked(); return nil })
	p, is := errors.AsType[*reprise.PanicError](err)
	if !is || p.Value != "oh" || !strings.Contains(string(p.Stack), "oteltrace_test.panicked") {
		t.Errorf("got %v, want a PanicError with the stack", err)
	}
	s := r.only(t)
	if s.Status().Code != codes.Error || s.Status().Description != "panic: oh" {
		t.Errorf("status: got %+v, want Error with panic: oh", s.Status())
	}
	if _, found := copied(nil, err)[oteltrace.HeaderPrevious]; !found {
		t.Error("error without the header for the next attempt")
	}
}

func panicked() { panic("oh") }

func TestMiddlewareEndsSpanOnGoexit(t *testing.T) {
	r := newRecorder()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, func(context.Context, *reprise.Delivery) error { runtime.Goexit(); return nil })
	})
	wg.Wait()
	if s := r.only(t); s.Status().Code != codes.Error {
		t.Errorf("status after Goexit: got %+v, want Error", s.Status())
	}
}

// Without an SDK, the middleware does not record spans, but propagates the trace context.
func TestMiddlewareWithoutSDKPropagatesContext(t *testing.T) {
	origin, header := elsewhere(t)
	handler := oteltrace.Middleware(oteltrace.Config{TracerProvider: noop.NewTracerProvider()})(reprise.HandlerFunc(
		func(ctx context.Context, _ *reprise.Delivery) error {
			if got := trace.SpanContextFromContext(ctx); got.SpanID() != origin.SpanID() {
				t.Errorf("span context of the handler: got %v, want %v", got, origin)
			}
			return errTest
		}))
	m := &reprise.Delivery{Message: reprise.Message{Headers: map[string]any{"traceparent": header}}, Queue: "orders", Attempt: 1}
	if err := handler.Handle(t.Context(), m); err != errTest {
		t.Errorf("got %#v, want errTest", err)
	}
}

// An attempt is linked to the previous attempt even if the previous attempt is not sampled.
func TestUnsampledAttemptsAreLinked(t *testing.T) {
	r := newRecorder(sdktrace.WithSampler(sdktrace.NeverSample()))
	err := r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(errTest))
	if header, _ := copied(nil, err)[oteltrace.HeaderPrevious].(string); !strings.HasSuffix(header, "-00") {
		t.Errorf("header for the next attempt: got %q, want flags 00", header)
	}
}

// A head sampler receives the links, so its decision can depend on them.
func TestSamplerReceivesLinks(t *testing.T) {
	r := newRecorder(sdktrace.WithSampler(samplerFunc(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
		if slices.ContainsFunc(p.Links, func(l trace.Link) bool { return l.SpanContext.IsSampled() }) {
			return sdktrace.AlwaysSample().ShouldSample(p)
		}
		return sdktrace.NeverSample().ShouldSample(p)
	})))
	_, header := elsewhere(t)
	_ = r.attempt(&reprise.Delivery{Queue: "orders", Attempt: 1}, returning(nil))
	_ = r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: map[string]any{"traceparent": header}}, Queue: "orders", Attempt: 1}, returning(nil))
	if s := r.only(t); len(s.Links()) != 1 {
		t.Errorf("links of the sampled attempt: got %q, want 1", linked(s))
	}
}

type samplerFunc func(sdktrace.SamplingParameters) sdktrace.SamplingResult

func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult { return f(p) }

func (samplerFunc) Description() string { return "test" }

func TestMiddlewareExtractsBaggage(t *testing.T) {
	r := newRecorder()
	r.config.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	_ = r.attempt(&reprise.Delivery{Message: reprise.Message{Headers: map[string]any{"baggage": "tenant=acme"}}, Queue: "orders", Attempt: 1},
		func(ctx context.Context, _ *reprise.Delivery) error {
			if got := baggage.FromContext(ctx).Member("tenant").Value(); got != "acme" {
				t.Errorf("tenant: got %q, want acme", got)
			}
			return nil
		})
}
