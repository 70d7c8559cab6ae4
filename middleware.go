package reprise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

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
