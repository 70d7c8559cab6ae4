package reprise

import (
	"context"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/consume"
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

// MaxPeeks is how often a message may have been given back to its queue for Peek to look at
// it once more.
const MaxPeeks = 5

// Peek shows look the first n messages of a queue, in their order, one at a time, as
// WorkerConfig.AsDelivered does, and gives them back together. A queue that has fewer ends
// it early, and so does a message that was given back MaxPeeks times. It returns a
// *QueueError as Depth does.
//
// Looking is not free. Until it returns nobody else gets these messages. They are
// redelivered after it, and before RabbitMQ 4.3 each look counts towards the
// x-delivery-limit of a quorum queue, beyond which a message is dead-lettered or dropped:
// that is 20 unless it is set, so that MaxPeeks leaves room, but for a limit below it.
// A quorum queue keeps apart what was given back: of that, a look at a part
// changes the order. RabbitMQ 3.10 puts it at the tail of one that has no limit.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
func (c *Client) Peek(ctx context.Context, queue string, n int, look func(*Message)) error {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	last, err := peek(ctx, ch, queue, n, look)
	if last > 0 {
		_ = ch.Nack(last, true, true) // or it is given back as the channel closes
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), consume.LastGrace)
	defer cancel()
	ch.Close(back)
	return aboutQueue(queue, err)
}

// peek returns the tag of the last message that it has got.
func peek(ctx context.Context, ch *amqpconn.Channel, queue string, n int, look func(*Message)) (last uint64, err error) {
	for range n {
		d, found, err := ch.Get(ctx, queue)
		if err != nil || !found {
			return last, err
		}
		last = d.Tag
		if given, _ := amqpvalue.Integer(d.Headers["x-delivery-count"]); given >= MaxPeeks {
			return last, nil
		}
		m := messageOf(&d, queue, amqpconn.CloneTable(d.Headers))
		look(&m)
	}
	return last, nil
}
