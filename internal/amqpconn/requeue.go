package amqpconn

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

const (
	returnTime = time.Second           // maximum time for which AwaitReturn waits until the queue shows the requeued messages
	settleTime = 32 * time.Millisecond // time after which a constant depth is final, because other messages were taken or have become due
)

// AwaitReturn waits until a queue has n ready messages. A quorum queue of RabbitMQ processes a requeue later than the channel, so
// that the next request, for example of a redrive, could find an empty queue.
func (ch *Channel) AwaitReturn(ctx context.Context, queue string, n int) {
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	before := 0
	for pause := time.Millisecond; ; pause *= 2 {
		depth, err := ch.Depth(ctx, queue)
		if err != nil || depth >= n || depth > 0 && depth == before && pause > settleTime || retry.Sleep(ctx, pause) != nil {
			return
		}
		before = depth
	}
}

// CloseSoon closes a channel and waits for the broker's reply, even if ctx is done.
func (ch *Channel) CloseSoon(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	ch.Close(ctx)
}
