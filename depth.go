package reprise

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"
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
		if sleep(ctx, c.cfg.Reconnect.Delay(failures)) != nil {
			return 0, err
		}
	}
}

func (c *Client) depth(ctx context.Context, queue string) (int, error) {
	conn, err := c.consuming.get(ctx)
	if err != nil {
		return 0, err
	}
	n, err := onChannel(ctx, c, conn, func(ch *amqp.Channel) (int, error) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return q.Messages, err
	})
	return n, aboutQueue(queue, err)
}

// aboutQueue is an error of asking about a queue: a *QueueError where the broker refused.
func aboutQueue(queue string, err error) error {
	if refusal, ok := errors.AsType[*amqp.Error](err); ok && refusal.Server && refusal.Recover {
		return &QueueError{Queue: queue, Code: refusal.Code, Text: refusal.Reason}
	}
	return err
}
