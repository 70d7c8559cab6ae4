package failed

import (
	"context"
	"time"
)

// sleep waits for d, or for the end of ctx: then it returns why that has ended.
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

// grace returns a context that ends d after ctx has: for what has begun and had better
// come to its end. It is to be cancelled.
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

// signal wakes a goroutine that reads from it. One that is sent while another waits to be read
// is that one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
