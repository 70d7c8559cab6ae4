package oteltrace

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headers are a message's, as a propagator wants them.
type headers map[string]any

// Get implements propagation.TextMapCarrier. A value that is no text counts as
// absent; some clients send text as bytes.
func (h headers) Get(key string) string {
	switch v := h[key].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (h headers) Set(key, value string) { h[key] = value }

// Keys implements propagation.TextMapCarrier.
func (h headers) Keys() []string { return slices.Collect(maps.Keys(h)) }

const traceparent = "traceparent"

// previous returns the span of the attempt before; it is not valid where there is
// none.
func (h headers) previous() trace.SpanContext {
	carrier := propagation.MapCarrier{traceparent: cmp.Or(h.Get(HeaderPrevious), h.Get(formerPrevious))}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// withoutPrevious removes it.
func (h headers) withoutPrevious() {
	delete(h, HeaderPrevious)
	delete(h, formerPrevious)
}

// asPrevious is the header that makes s the attempt before.
func asPrevious(s trace.SpanContext) map[string]any {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return map[string]any{HeaderPrevious: carrier[traceparent]}
}

// extract returns ctx with what a propagator finds in the headers, and the span
// that is among it. A span that ctx has of its own is not: it is no part of the
// message.
func (h headers) extract(ctx context.Context, p propagation.TextMapPropagator) (context.Context, trace.SpanContext) {
	ctx = p.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), h)
	return ctx, trace.SpanContextFromContext(ctx)
}
