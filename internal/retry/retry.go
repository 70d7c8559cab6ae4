// Package retry counts the failures of an operation that is tried again and again.
// It imports the standard library and package backoff.
package retry

import (
	"context"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// Steady is how long a connection or channel must last for the next failure to count as
// the first one. Shorter-lived ones are reopened with growing delays, which protects a
// broker that drops them at once.
const Steady = 30 * time.Second

// Retrier counts consecutive failures.
type Retrier struct {
	Schedule backoff.Backoff
	failures int
}

// Failed returns the delay after one more failure of something that had lasted for a
// while.
func (r *Retrier) Failed(lasted time.Duration) time.Duration {
	if lasted >= Steady {
		r.failures = 0
	}
	r.failures++
	return r.Schedule.Delay(r.failures)
}

// Next is the log attribute for the time until the next attempt.
func Next(delay time.Duration) slog.Attr {
	return slog.Duration("next_try", delay.Round(time.Millisecond))
}

// Sleep waits for d, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
