package handler

import (
	"context"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
)

// traceShapes has the headers of W3C Trace Context and the form of their values. Other values could inject a header.
var traceShapes = map[string]*regexp.Regexp{
	"traceparent": regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[0-9a-f-]{0,64}$`),
	"tracestate":  regexp.MustCompile(`^[!-~][ -~]{0,511}$`),
}

// traceHeaders returns the trace context for a handler, under the names that libraries for tracing read: the span of the attempt in
// ctx, or else the valid headers of W3C Trace Context of the message. If names of headers differ only in case, the name in lower case
// is last.
func traceHeaders(ctx context.Context, m *reprise.Delivery) iter.Seq2[string, string] {
	if trace.SpanContextFromContext(ctx).IsValid() {
		span := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, span)
		return maps.All(span)
	}
	return func(yield func(name, value string) bool) {
		for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
			name := strings.ToLower(key)
			shape := traceShapes[name]
			if value := Text(m.Headers[key]); shape != nil && shape.MatchString(value) && !yield(name, value) {
				return
			}
		}
	}
}
