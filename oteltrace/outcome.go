package oteltrace

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// maxText is the maximum length of an error text on a span, in bytes. Error texts on messages have the same limit.
const maxText = 4 << 10

// record sets the result of a handler on the span of its attempt.
func record(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	if err == nil {
		span.SetAttributes(OutcomeKey.String("done"))
		return
	}
	// The methods of the error are user code. A panic in them must not change the outcome of the attempt.
	defer func() {
		if recover() != nil {
			span.SetStatus(codes.Error, "cannot read the error: its methods panic")
		}
	}()
	span.SetAttributes(outcome(err)...)
	span.SetAttributes(errorType(err))
	span.SetStatus(codes.Error, text(err))
}

// unnamed is the delay that Decide returns for an error that does not request a delay.
const unnamed = backoff.Fixed(math.MaxInt64)

// outcome returns the span attributes for the action that the worker derives from err: OutcomeKey and, if requested,
// RetryAfterKey and PauseForKey.
func outcome(err error) []attribute.KeyValue {
	d := reprise.Policy{MaxAttempts: 2, Backoff: unnamed}.Decide(err, 1, 0)
	if !d.Retry {
		return []attribute.KeyValue{OutcomeKey.String("park")}
	}
	attributes := []attribute.KeyValue{OutcomeKey.String("retry")}
	if d.Delay != time.Duration(unnamed) {
		attributes = append(attributes, RetryAfterKey.Float64(d.Delay.Seconds()))
	}
	if d.Pause > 0 {
		attributes = append(attributes, PauseForKey.Float64(d.Pause.Seconds()))
	}
	return attributes
}

// errorType returns "timeout" for reprise.ErrAttemptTimeout, and otherwise the type of the cause, not of the reprise
// error that wraps the cause.
func errorType(err error) attribute.KeyValue {
	if errors.Is(err, reprise.ErrAttemptTimeout) {
		return semconv.ErrorTypeKey.String("timeout")
	}
	for {
		inner := error(nil)
		switch x := err.(type) {
		case *reprise.ParkError:
			inner = x.Err
		case *reprise.RetryAfterError:
			inner = x.Err
		case *reprise.AnnotatedError:
			inner = x.Err
		}
		if inner == nil {
			return semconv.ErrorType(err)
		}
		err = inner
	}
}

// text returns the error string of err, truncated to maxText. It omits the stack of a panic, because the worker records
// the stack with the message.
func text(err error) string {
	s := err.Error()
	if p, is := errors.AsType[*reprise.PanicError](err); is {
		s = fmt.Sprintf("panic: %v", p.Value)
	}
	if len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
