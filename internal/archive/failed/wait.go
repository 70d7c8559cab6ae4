package failed

import (
	"context"
	"time"
)

// sleep waits for d and returns nil. If ctx is done first, it returns the cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// grace returns a context that is canceled d after ctx is done, to complete work that has begun. Call the CancelFunc
// when the work is complete.
func grace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if sleep(longer, d) == nil {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// signal wakes a goroutine that receives from it. Signals that are sent before the goroutine receives are merged into
// one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
