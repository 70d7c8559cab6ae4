package reprise

import (
	"context"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
)

// Depth returns how many messages are ready in a queue: those that were delivered to a
// consumer and are not settled do not count. It returns a *QueueError if there is no
// such queue, or if this user or connection may not use it. It waits for a connection,
// and asks again if that is lost, until ctx ends.
// https://www.rabbitmq.com/amqp-0-9-1-reference#queue.declare-ok.message-count
func (c *Client) Depth(ctx context.Context, queue string) (int, error) {
	for failures := 1; ; failures++ {
		n, err := c.depth(ctx, queue)
		if err == nil || ctx.Err() != nil || !passes(err) {
			return n, err
		}
		if retry.Sleep(ctx, c.cfg.Reconnect.Delay(failures)) != nil {
			return 0, err
		}
	}
}

func (c *Client) depth(ctx context.Context, queue string) (n int, err error) {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return 0, err
	}
	err = conn.Do(ctx, func(ch *amqpconn.Channel) (err error) {
		n, err = ch.Depth(ctx, queue)
		return err
	})
	return n, aboutQueue(queue, err)
}

// aboutQueue returns a *QueueError where the broker refused a request about a queue.
func aboutQueue(queue string, err error) error {
	if refusal, ok := amqpconn.RefusedChannel(err); ok {
		return &QueueError{Queue: queue, Code: refusal.Code, Text: refusal.Text}
	}
	return err
}
