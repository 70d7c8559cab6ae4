package oteltrace_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/oteltrace"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var errTest = errors.New("test")

// recorder records the spans that code with its config creates.
type recorder struct {
	*tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
	config   oteltrace.Config
}

func newRecorder(options ...sdktrace.TracerProviderOption) *recorder {
	r := &recorder{SpanRecorder: tracetest.NewSpanRecorder()}
	r.provider = sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(r.SpanRecorder))...)
	r.config = oteltrace.Config{TracerProvider: r.provider}
	return r
}

// only returns the ended span. It fails the test if the number of ended spans is not one.
func (r *recorder) only(t testing.TB) sdktrace.ReadOnlySpan {
	t.Helper()
	ended := r.Ended()
	if len(ended) != 1 {
		t.Fatalf("ended spans: got %d, want 1", len(ended))
	}
	return ended[0]
}

// attempt runs a handler once, wrapped by Middleware.
func (r *recorder) attempt(m *reprise.Delivery, handler func(context.Context, *reprise.Delivery) error) error {
	return oteltrace.Middleware(r.config)(reprise.HandlerFunc(handler)).Handle(context.Background(), m)
}

func returning(err error) func(context.Context, *reprise.Delivery) error {
	return func(context.Context, *reprise.Delivery) error { return err }
}

// copied returns the headers of the copy that a worker publishes after an attempt that returned err.
func copied(headers map[string]any, err error) map[string]any {
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string]any{}
	}
	if annotated, ok := errors.AsType[*reprise.AnnotatedError](err); ok {
		maps.Copy(headers, annotated.Headers)
	}
	return headers
}

// attributes returns the attributes of a span or link as strings.
func attributes(all []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}

// linked returns the targets of a span's links, such as "producer 0102…".
func linked(s sdktrace.ReadOnlySpan) (to []string) {
	for _, l := range s.Links() {
		to = append(to, fmt.Sprintf("%s %s", attributes(l.Attributes)["reprise.link"], l.SpanContext.SpanID()))
	}
	return to
}

func producer(s trace.SpanContext) string { return "producer " + s.SpanID().String() }
func previous(s trace.SpanContext) string { return "previous_attempt " + s.SpanID().String() }

// elsewhere returns the span context of another process, and the header that contains it.
func elsewhere(t testing.TB) (trace.SpanContext, string) {
	t.Helper()
	const header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": header})
	s := trace.SpanContextFromContext(ctx)
	if !s.IsValid() {
		t.Fatal("invalid traceparent")
	}
	return s, header
}
