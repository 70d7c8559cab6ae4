package reprise

import (
	"context"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// steady is how long a connection or channel must have lasted for the next
// failure to count as the first: shorter-lived ones are reopened with growing
// delays, so that a broker which drops us at once is not hammered.
const steady = 30 * time.Second

// retrier counts failures of something that is tried again and again.
type retrier struct {
	schedule backoff.Backoff
	failures int
}

// failed returns how long to wait after one more failure of something that had
// lasted for a while.
func (r *retrier) failed(lasted time.Duration) time.Duration {
	if lasted >= steady {
		r.failures = 0
	}
	r.failures++
	return r.schedule.Delay(r.failures)
}

// nextTry is how an event says when something is tried again.
func nextTry(delay time.Duration) slog.Attr {
	return slog.Duration("next_try", delay.Round(time.Millisecond))
}

// sleep waits for d, or returns the reason ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
