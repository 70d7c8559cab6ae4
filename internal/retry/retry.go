// Package retry counts consecutive failures of a repeated operation, and reports why a program waits for a broker. It
// imports only the standard library and package backoff.
package retry

import (
	"context"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// Steady is the minimum lifetime of a connection or channel after which the count of failures restarts at 1. Connections and
// channels with a shorter lifetime are reopened with growing delays, which protects a broker that closes them immediately.
const Steady = 30 * time.Second

// Retrier counts consecutive failures.
type Retrier struct {
	Schedule backoff.Backoff
	failures int
}

// Failed counts a failure of a connection or channel with the given lifetime, and returns the delay before the next attempt.
func (r *Retrier) Failed(lasted time.Duration) time.Duration {
	if lasted >= Steady {
		r.failures = 0
	}
	r.failures++
	return r.Schedule.Delay(r.failures)
}

// Next returns the log attribute for the time until the next attempt.
func Next(delay time.Duration) slog.Attr {
	return slog.Duration("next_try", delay.Round(time.Millisecond))
}

// Sleep waits for d. If ctx is done first, Sleep returns the cause of its cancellation.
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
