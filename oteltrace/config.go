package oteltrace

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Config configures tracing. The zero value selects the defaults.
type Config struct {
	// TracerProvider creates the spans. Default: the global provider of OpenTelemetry. The program may set the global
	// provider later.
	TracerProvider trace.TracerProvider

	// Propagator reads and writes the trace context in headers. Default: propagation.TraceContext. The global propagator
	// of OpenTelemetry is not the default, because it has no effect until the program sets it. Until then, the spans would
	// have no links, and no error would report this.
	Propagator propagation.TextMapPropagator

	// ChildOfProducer makes the first attempt a child of the span that published the message, in addition to the link,
	// so that both are in one trace. Later attempts remain separate traces. Default: false.
	ChildOfProducer bool
}

// Attributes of this package.
const (
	// AttemptKey is the number of the attempt, from 1.
	AttemptKey = attribute.Key("reprise.attempt")

	// OutcomeKey is the action that the result of the handler requests: "done", "retry" or "park".
	OutcomeKey = attribute.Key("reprise.outcome")

	// RetryAfterKey is the delay in seconds that the handler requested with reprise.RetryAfter or reprise.PauseFor.
	RetryAfterKey = attribute.Key("reprise.retry_after")

	// PauseForKey is the pause in seconds that the handler requested with reprise.PauseFor.
	PauseForKey = attribute.Key("reprise.pause_for")

	// RedeliveredKey is true if the delivery is a redelivery: the broker did not receive an acknowledgement, or the
	// message was requeued. Otherwise the attribute is absent.
	RedeliveredKey = attribute.Key("reprise.redelivered")

	// LinkKey is the kind of a link: "producer" or "previous_attempt".
	LinkKey = attribute.Key("reprise.link")
)

// HeaderPrevious is the header with the span context of the previous attempt, in the format of traceparent. Middleware
// removes the header before the handler runs.
const HeaderPrevious = "x-reprise-previous-traceparent"

// formerPrevious is an earlier name of HeaderPrevious. The package reads it if HeaderPrevious is missing.
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
