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

// Handler processes messages.
//
// The worker settles the message according to the result of Handle:
//
//	nil                  acknowledged
//	RetryAfter(d, err)   retried after d
//	PauseFor(d, err)     retried after d, and the worker does not consume for d
//	Park(err)            parked immediately
//	other errors         retried after the delay of the Policy
//	panic, Goexit        same as other errors
//
// If no attempt is left, the message is parked instead of retried.
//
// ctx is canceled when a shutdown no longer waits for handlers: after the DrainTimeout, or when the context that was
// passed to Shutdown is done. An attempt that fails after this cancellation does not count. A lost connection does not
// cancel ctx: the broker redelivers the message, but finishing the work is better than leaving it incomplete. ctx has
// the values of the context that was passed to Run.
//
// The worker calls Handle from up to Concurrency goroutines at the same time. The broker may deliver a message again even
// if its handler succeeded, because the connection may fail before the acknowledgement arrives. Use MessageID to detect
// duplicates.
type Handler interface {
	Handle(ctx context.Context, m *Delivery) error
}

// HandlerFunc is a function that implements Handler.
type HandlerFunc func(ctx context.Context, m *Delivery) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Delivery) error { return f(ctx, m) }

// Middleware wraps a Handler in another Handler. The wrapper may examine the message before and the error after the call,
// or not call the Handler at all.
//
//	func logged(next reprise.Handler) reprise.Handler {
//		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
//			err := next.Handle(ctx, m)
//			slog.InfoContext(ctx, "handled", "message", m.MessageID, "error", err)
//			return err
//		})
//	}
//
// The wrapper must return the Handler's error, or wrap it with %w. The worker also recognizes outcomes such as Park in a
// wrapped error.
//
// The recommended order starts with the outermost middleware, which is the first of WorkerConfig.Middleware:
//
//	oteltrace.Middleware   its span includes all of the following
//	idempotent.Middleware  a duplicate skips all of the following, and no timeout interrupts access to the store
//	Immediate              each further run repeats the following
//	Timeout                limits each run; if it is before Immediate, it limits all runs together
type Middleware func(Handler) Handler

// Chain wraps h in all middleware. The first middleware is the outermost. It gets the message first and the error last.
func Chain(h Handler, middleware ...Middleware) Handler {
	for _, m := range slices.Backward(middleware) {
		h = m(h)
	}
	return h
}

// ErrAttemptTimeout is the error of an attempt that failed after its Timeout had passed.
var ErrAttemptTimeout = errors.New("reprise: attempt timed out")

// Timeout cancels the context of an attempt after d. If the handler then returns an error, the attempt fails with an error
// that wraps both ErrAttemptTimeout and the handler's error. An outcome in that error (RetryAfter, Park) remains valid. If
// the handler returns nil, the attempt has succeeded. Timeout does not terminate a handler that ignores its context: the
// attempt lasts until the handler returns.
//
// If d is 0 or negative, there is no timeout.
func Timeout(d time.Duration) Middleware {
	return func(next Handler) Handler {
		if d <= 0 {
			return next
		}
		return HandlerFunc(func(ctx context.Context, m *Delivery) error {
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

// Immediate runs a failed handler again, up to n more times, and pauses before each further run. Use it for transient
// errors that do not justify a wait queue. All runs together count as one attempt, and the attempt records the error of the
// last run. Immediate does not run the handler again after RetryAfter, PauseFor or Park, or after the context is canceled.
// It does not recover panics.
//
// During the pauses, the message occupies one of the Concurrency slots, and other messages wait. Therefore n and pause
// should be small. Each run gets a separate copy of the Delivery.
func Immediate(n int, pause time.Duration) Middleware {
	return func(next Handler) Handler {
		if n <= 0 {
			return next
		}
		return HandlerFunc(func(ctx context.Context, m *Delivery) error {
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

// clone returns a copy of m that shares no memory that a handler is likely to change. Nested tables are shared.
func (m *Delivery) clone() *Delivery {
	c := *m
	c.Body = bytes.Clone(m.Body)
	c.Headers = maps.Clone(m.Headers)
	c.Errors = slices.Clone(m.Errors)
	return &c
}
