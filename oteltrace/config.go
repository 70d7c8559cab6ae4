package oteltrace

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Config adjusts tracing. The zero value means the defaults.
type Config struct {
	// TracerProvider makes the spans. Default: OpenTelemetry's global one, also
	// where that is set later.
	TracerProvider trace.TracerProvider

	// Propagator writes the context of a trace into headers, and reads it there.
	// Default: propagation.TraceContext, and not OpenTelemetry's global one: that
	// does nothing until somebody sets it, and the links would silently be
	// missing.
	Propagator propagation.TextMapPropagator

	// ChildOfProducer makes the first attempt a child of the span that published
	// the message, beside the link, so that both are in one trace. Later attempts
	// are traces of their own all the same. Default: no.
	ChildOfProducer bool
}

// Attributes of our own.
const (
	// AttemptKey is the number of the attempt, from 1.
	AttemptKey = attribute.Key("reprise.attempt")

	// OutcomeKey is what the handler asked for: "done", "retry" or "park".
	OutcomeKey = attribute.Key("reprise.outcome")

	// RetryAfterKey is the delay in seconds where the handler named one, by
	// reprise.RetryAfter or reprise.PauseFor.
	RetryAfterKey = attribute.Key("reprise.retry_after")

	// PauseForKey is for how many seconds the worker is to pause, where the
	// handler asked for it by reprise.PauseFor.
	PauseForKey = attribute.Key("reprise.pause_for")

	// RedeliveredKey is true where the broker delivered the message before and
	// was given no answer, or got it back; absent otherwise.
	RedeliveredKey = attribute.Key("reprise.redelivered")

	// LinkKey is an attribute of links: "producer" or "previous_attempt".
	LinkKey = attribute.Key("reprise.link")
)

// HeaderPrevious is the header with the context of the span of the attempt before,
// in the form of traceparent. Handlers do not see it.
const HeaderPrevious = "x-reprise-previous-traceparent"

// formerPrevious is an earlier name of HeaderPrevious. It is read where HeaderPrevious is missing.
const formerPrevious = "x-previous-traceparent"

func (c Config) withDefaults() Config {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	return c
}

func (c Config) tracer() trace.Tracer {
	return c.TracerProvider.Tracer("github.com/reprisemq/reprise/oteltrace", trace.WithSchemaURL(semconv.SchemaURL))
}
