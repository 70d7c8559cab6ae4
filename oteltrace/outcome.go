package oteltrace

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprisemq/reprise"
)

// maxText bounds the text of an error on a span, as on a message.
const maxText = 4 << 10

// record writes what a handler returned on the span of its attempt.
func record(span trace.Span, err error) {
	if !span.IsRecording() {
		return
	}
	if err == nil {
		span.SetAttributes(OutcomeKey.String("done"))
		return
	}
	// The error's methods are the user's code, and what they do must not become
	// the outcome of the attempt.
	defer func() {
		if recover() != nil {
			span.SetStatus(codes.Error, "the error cannot be read: its methods panic")
		}
	}()
	span.SetAttributes(read(err).attributes()...)
	span.SetAttributes(errorType(err))
	span.SetStatus(codes.Error, text(err))
}

// asked is what a handler wants by its error.
type asked struct {
	park   bool
	named  bool // the delay
	delay  time.Duration
	paused time.Duration
}

func (a asked) attributes() []attribute.KeyValue {
	if a.park {
		return []attribute.KeyValue{OutcomeKey.String("park")}
	}
	attributes := []attribute.KeyValue{OutcomeKey.String("retry")}
	if a.named {
		attributes = append(attributes, RetryAfterKey.Float64(a.delay.Seconds()))
	}
	if a.paused > 0 {
		attributes = append(attributes, PauseForKey.Float64(a.paused.Seconds()))
	}
	return attributes
}

// read reads an error as the worker does: the outermost outcome counts; of errors
// that are joined, one that parks, else the longest delay and the longest pause.
func read(err error) (a asked) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *reprise.ParkError:
			return asked{park: true}
		case *reprise.RetryAfterError:
			a = asked{named: true, delay: max(0, x.Delay)}
			if x.Pause {
				a.paused = a.delay
			}
			return a
		case interface{ Unwrap() []error }:
			for _, branch := range x.Unwrap() {
				b := read(branch)
				if b.park {
					return b
				}
				a = asked{named: a.named || b.named, delay: max(a.delay, b.delay), paused: max(a.paused, b.paused)}
			}
			return a
		}
	}
	return asked{}
}

// errorType names the type of what went wrong, rather than that of the outcome it
// is wrapped in.
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

// text is what an error says. The stack of a panic is recorded with the message.
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
