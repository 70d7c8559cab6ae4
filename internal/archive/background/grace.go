package background

import (
	"context"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/retry"
)

// Grace returns a context that is canceled d after ctx is done, to complete work that has begun. Call the CancelFunc
// when the work is complete.
func Grace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if retry.Sleep(longer, d) == nil {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// Signal wakes a goroutine that receives from it. Signals that are sent before the goroutine receives are merged into
// one.
type Signal chan struct{}

// NewSignal returns a Signal that nothing has sent yet.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver. It does not block.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// AwaitRequeued waits until the depth of a queue is at least found again, because a quorum queue counts requeued
// messages with a delay. Without the wait, an immediate redrive would find fewer messages. Other consumers may take
// some messages in the meantime, so AwaitRequeued waits for at most 2 s.
func AwaitRequeued(ctx context.Context, c *reprise.Client, queue string, found int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for retry.Sleep(ctx, 10*time.Millisecond) == nil {
		if n, err := c.Depth(ctx, queue); err != nil || n >= found {
			return
		}
	}
}
