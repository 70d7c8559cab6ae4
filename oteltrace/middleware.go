package oteltrace

import (
	"context"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
)

// Middleware creates a span for each attempt. Put it before all other middleware of a worker, including idempotent's,
// so that the span covers the other middleware, and duplicates get a span, too. See reprise.Middleware. A span that is
// already in the context does not become the parent of the new span.
//
// The context of the handler contains the span. Middleware annotates an error with a header for the retry copy (see
// reprise.Annotate), which does not change the outcome. A panic becomes a *reprise.PanicError, as in the worker.
func Middleware(cfg Config) reprise.Middleware {
	cfg = cfg.withDefaults()
	tracer := cfg.tracer()
	return func(next reprise.Handler) reprise.Handler {
		return &handler{cfg: cfg, tracer: tracer, next: next}
	}
}

type handler struct {
	cfg    Config
	tracer trace.Tracer
	next   reprise.Handler
}

// Handle implements reprise.Handler.
func (h *handler) Handle(ctx context.Context, m *reprise.Delivery) (err error) {
	ctx, span := h.begin(ctx, m)
	err = reprise.ErrHandlerExited // the result if the handler calls runtime.Goexit
	defer func() {
		if v := recover(); v != nil {
			err = &reprise.PanicError{Value: v, Stack: debug.Stack()}
		}
		record(span, err)
		span.End()
		// Without an SDK, span is the producer's span.
		if s := span.SpanContext(); s.IsValid() && !s.IsRemote() {
			err = reprise.Annotate(err, asPrevious(s))
		}
	}()
	return h.next.Handle(ctx, m)
}

// begin starts the span of an attempt.
func (h *handler) begin(ctx context.Context, m *reprise.Delivery) (context.Context, trace.Span) {
	ctx, producer := headers(m.Headers).extract(ctx, h.cfg.Propagator)
	previous := headers(m.Headers).previous()
	headers(m.Headers).withoutPrevious()

	attributes := append(describe("process", destination(m.Exchange, m.RoutingKey, m.Queue), m.RoutingKey),
		semconv.MessagingOperationTypeProcess, AttemptKey.Int(m.Attempt))
	if m.CorrelationID != "" {
		attributes = append(attributes, semconv.MessagingMessageConversationID(m.CorrelationID))
	}
	if m.MessageID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(m.MessageID))
	}
	if m.Redelivered {
		attributes = append(attributes, RedeliveredKey.Bool(true))
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attributes...),
		trace.WithLinks(links(producer, previous)...),
	}
	if follows := m.Attempt == 1 && !previous.IsValid(); !h.cfg.ChildOfProducer || !follows {
		options = append(options, trace.WithNewRoot())
	}
	return h.tracer.Start(ctx, "process "+m.Queue, options...)
}

// links returns a link for each valid span context.
func links(producer, previous trace.SpanContext) (links []trace.Link) {
	link := func(to trace.SpanContext, what string) {
		if to.IsValid() {
			links = append(links, trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{LinkKey.String(what)}})
		}
	}
	link(producer, "producer")
	link(previous, "previous_attempt")
	return links
}
