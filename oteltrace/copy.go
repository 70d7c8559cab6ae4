package oteltrace

import (
	"context"
	"errors"
	"sync"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
)

// Observer creates a span for each copy of a failed message, as a child of the span of the failed attempt, from the end of the
// handler until the worker has published the copy and acknowledged the message. The name of the span is "retry QUEUE" or "park
// QUEUE", with the work queue. Unlike OutcomeKey of the attempt, it shows the decision of the Policy.
//
// Set it as reprise.Config.Observer of the client whose workers have Middleware with an equal Config. Events of other messages have no
// effect.
func Observer(cfg Config) reprise.Observer {
	return &observer{tracer: cfg.withDefaults().tracer()}
}

type observer struct {
	tracer trace.Tracer
	failed sync.Map // failed attempts that are not settled, by their *reprise.Delivery
}

// failedAttempt is an attempt whose message may be copied, with the time at which the handler returned.
type failedAttempt struct {
	span trace.SpanContext
	at   time.Time
}

// Observe implements reprise.Observer.
func (o *observer) Observe(e reprise.Event) {
	switch e.Kind {
	case reprise.EventHandled:
		if span := failedSpan(e.Err); span.IsValid() && e.Delivery != nil {
			o.failed.Store(e.Delivery, &failedAttempt{span: span, at: time.Now()})
		}
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventRequeued, reprise.EventDropped, reprise.EventLost:
		if e.Delivery == nil {
			return
		}
		if a, found := o.failed.LoadAndDelete(e.Delivery); found && !e.Rejected {
			o.record(a.(*failedAttempt), e)
		}
	}
}

// failedSpan returns the span with which Middleware has annotated an error, if any.
func failedSpan(err error) trace.SpanContext {
	annotated, ok := errors.AsType[*reprise.AnnotatedError](err)
	if !ok {
		return trace.SpanContext{}
	}
	return headers(annotated.Headers).previous()
}

// record creates the span of a copy.
func (o *observer) record(a *failedAttempt, e reprise.Event) {
	operation := ""
	switch e.Kind {
	case reprise.EventRetried:
		operation = "retry"
	case reprise.EventParked:
		operation = "park"
	default:
		return
	}
	attributes := append(describe(operation, destination("", e.Queue, ""), ""), semconv.MessagingOperationTypeSend, AttemptKey.Int(e.Attempt))
	if e.MessageID != "" {
		attributes = append(attributes, semconv.MessagingMessageID(e.MessageID))
	}
	if e.Delay > 0 {
		attributes = append(attributes, RetryAfterKey.Float64(e.Delay.Seconds()))
	}
	_, span := o.tracer.Start(trace.ContextWithSpanContext(context.Background(), a.span), operation+" "+e.Queue,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(a.at), trace.WithAttributes(attributes...))
	span.End()
}
