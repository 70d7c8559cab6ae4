package oteltrace

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// headers implements propagation.TextMapCarrier with the headers of a message.
type headers map[string]any

// Get implements propagation.TextMapCarrier. It accepts strings and byte slices, because some clients send text as
// bytes. For other types it returns "".
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

// previous returns the span of the previous attempt, or an invalid span context if the headers have none.
func (h headers) previous() trace.SpanContext {
	carrier := propagation.MapCarrier{traceparent: cmp.Or(h.Get(HeaderPrevious), h.Get(formerPrevious))}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// withoutPrevious removes the span of the previous attempt.
func (h headers) withoutPrevious() {
	delete(h, HeaderPrevious)
	delete(h, formerPrevious)
}

// asPrevious returns the header that sets s as the span of the previous attempt.
func asPrevious(s trace.SpanContext) map[string]any {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return map[string]any{HeaderPrevious: carrier[traceparent]}
}

// extract returns ctx with the values that the propagator reads from the headers, and the span context from the
// headers. It ignores the span in ctx, because that span does not belong to the message.
func (h headers) extract(ctx context.Context, p propagation.TextMapPropagator) (context.Context, trace.SpanContext) {
	ctx = p.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), h)
	return ctx, trace.SpanContextFromContext(ctx)
}
