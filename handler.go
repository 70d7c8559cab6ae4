package reprise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

// Handler does the work a message asks for.
//
// What Handle returns decides what becomes of the message:
//
//	nil                  done: acknowledged
//	RetryAfter(d, err)   comes back after d
//	PauseFor(d, err)     comes back after d, and until then the worker consumes nothing
//	Park(err)            parked now
//	other errors         comes back after the Policy's delay
//	panic, Goexit        as other errors
//
// and when no attempt is left, it is parked instead of coming back.
//
// ctx ends when a shutdown has waited long enough (DrainTimeout, or the end of the
// context given to Shutdown); an attempt that then fails
// does not count. It goes on when the connection is lost: the message is delivered
// again, but work that was begun is better done than left half done. It carries the
// values of the context given to Run. Handle is
// called from Concurrency goroutines at once. A message may be delivered more
// than once even if its handler succeeded (the connection may be lost before
// the broker hears of it): MessageID tells duplicates.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// Middleware wraps a Handler in another one, which may look at the message
// before, at the error after, or not call the Handler at all.
//
//	func logged(next reprise.Handler) reprise.Handler {
//		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
//			err := next.Handle(ctx, m)
//			slog.InfoContext(ctx, "handled", "message", m.MessageID, "error", err)
//			return err
//		})
//	}
//
// It must pass outcomes on: an error it wraps with %w keeps its meaning.
//
// The order of those that care, from the outermost, which is the first of
// WorkerConfig.Middleware:
//
//	oteltrace.Middleware   its span covers all that follows
//	idempotent.Middleware  a duplicate costs nothing of what follows, and no timeout cuts off its store
//	Immediate              a run that is repeated repeats what follows
//	Timeout                bounds each run; before Immediate, it would bound all of them together
type Middleware func(Handler) Handler

// Chain returns h inside of all middleware, of which the first is the
// outermost: it sees the message first, and the error last.
func Chain(h Handler, middleware ...Middleware) Handler {
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

// ErrAttemptTimeout is the error of an attempt that Timeout has cut short.
var ErrAttemptTimeout = errors.New("reprise: the attempt took too long")

// Timeout ends the context of an attempt after d. A handler that then returns an
// error has failed with ErrAttemptTimeout, which wraps what it returned, and
// an outcome in that (RetryAfter, Park) still counts. One that returns nil has
// succeeded. Nothing ends a handler that does not look at its context: the
// attempt lasts until it returns.
//
// A d of 0 or less means no timeout.
func Timeout(d time.Duration) Middleware {
	return func(next Handler) Handler {
		if d <= 0 {
			return next
		}
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			limited, cancel := context.WithTimeoutCause(ctx, d, ErrAttemptTimeout)
			defer cancel()
			err := next.Handle(limited, m)
			if err != nil && errors.Is(context.Cause(limited), ErrAttemptTimeout) {
				return fmt.Errorf("%w (%s): %w", ErrAttemptTimeout, d, err)
			}
			return err
		})
	}
}

// Immediate runs a handler that failed again at once, up to n more times, with a
// pause before each: for errors that are over in a moment, and not worth a trip
// through a wait queue. All these runs are one attempt; the error of the last one
// is recorded. RetryAfter, PauseFor and Park are outcomes and not tried again, nor
// is anything when the context has ended. A panic is not caught here.
//
// The message keeps its slot meanwhile, so keep n and pause small: others wait.
// Each run is given a Message of its own.
func Immediate(n int, pause time.Duration) Middleware {
	return func(next Handler) Handler {
		if n <= 0 {
			return next
		}
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			for run := 0; ; run++ {
				err := next.Handle(ctx, m.clone())
				if run == n || ctx.Err() != nil {
					return err
				}
				if v := classify(err); v.outcome != failed {
					return err
				}
				if retry.Sleep(ctx, pause) != nil {
					return err
				}
			}
		})
	}
}

// clone returns a message that shares nothing with m which a handler is likely
// to write to: nested tables are shared.
func (m *Message) clone() *Message {
	c := *m
	c.Body = bytes.Clone(m.Body)
	c.Headers = maps.Clone(m.Headers)
	c.Errors = slices.Clone(m.Errors)
	return &c
}

// JSON makes a Handler of a function that takes the body decoded from JSON into
// a new T, as json.Unmarshal does it. A body that cannot be decoded is parked at
// once, since no retry will change it. The content type is not looked at: many
// publishers set none.
//
// If T or *T has a method Validate() error, it is called on what was decoded, and
// a message that it finds fault with is parked as well. So is null, unless T is a
// map, a slice or an interface.
func JSON[T any](f func(ctx context.Context, v T, m *Message) error) Handler {
	if f == nil {
		return HandlerFunc(nil) // which no worker takes
	}
	return HandlerFunc(func(ctx context.Context, m *Message) error {
		var v T
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return Park(fmt.Errorf("reprise: the body is not the JSON of a %T: %w", v, err))
		}
		if string(bytes.TrimSpace(m.Body)) == "null" && !nullable[T]() {
			return Park(fmt.Errorf("reprise: the body is null, not the JSON of a %T", v))
		}
		if err := validate(&v); err != nil {
			return Park(fmt.Errorf("reprise: the body is not a valid %T: %w", v, err))
		}
		return f(ctx, v, m)
	})
}

// nullable reports whether null is a value of T rather than the lack of one.
func nullable[T any]() bool {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}

// validate asks what was decoded, be its method one of T or of *T.
func validate[T any](v *T) error {
	type validator interface{ Validate() error }
	for _, x := range []any{v, *v} {
		if checked, ok := x.(validator); ok {
			return checked.Validate()
		}
	}
	return nil
}
