package reprise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Depth returns the number of ready messages in a queue. It does not include messages that are delivered and not yet
// settled. It returns a *QueueError if the queue does not exist, or if this user or connection may not use it. It waits for
// a connection, and repeats the request after a lost connection, until ctx is done.
// https://www.rabbitmq.com/amqp-0-9-1-reference#queue.declare-ok.message-count
func (c *Client) Depth(ctx context.Context, queue string) (int, error) {
	for failures := 1; ; failures++ {
		n, err := c.depth(ctx, queue)
		if err == nil || ctx.Err() != nil || !isTransient(err) {
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

// CheckExchange returns an *UnroutableError if the exchange does not exist, and a *RefusedError if this user may not access
// it. It waits for a connection until ctx is done. It does not repeat the request after a lost connection.
func (c *Client) CheckExchange(ctx context.Context, exchange string) error {
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	return checkTarget(ctx, conn, target{exchange: exchange})
}

// aboutQueue converts a refusal by the broker to a *QueueError, and returns other errors unchanged.
func aboutQueue(queue string, err error) error {
	if refusal, ok := amqpconn.RefusedChannel(err); ok {
		return &QueueError{Queue: queue, Code: refusal.Code, Text: refusal.Text}
	}
	return err
}

// MaxPeeks is the number of failed deliveries (x-delivery-count) at which Peek refuses to examine a message on RabbitMQ
// before 4.3, where each Peek itself counts as a failed delivery.
const MaxPeeks = 5

// Peek calls examine with each of the first n messages of a queue, one at a time and in the order of the queue. The
// messages are unchanged, as with WorkerConfig.AsDelivered. Then Peek requeues all of them together. Peek stops early at
// the end of the queue. Before RabbitMQ 4.3, it stops with ErrPeekLimit at a message with MaxPeeks failed deliveries.
// Peek returns a *QueueError for the same reasons as Depth. It waits for a connection until ctx is done, and does not
// repeat the requests after a lost connection.
//
// Peek refuses the queues of workers with OrderBy, whose order it could change.
//
// Peek has side effects. Until it returns, no consumer receives these messages. Afterwards they are redelivered. Before
// RabbitMQ 4.3, each call counts towards the x-delivery-limit of a quorum queue, above which the broker dead-letters or
// drops a message. The default limit is 20. MaxPeeks protects only the messages after the first one: to read the count of
// the first message, Peek must receive and requeue that message. Do not call Peek again after ErrPeekLimit, and do not
// call it at all if the x-delivery-limit is MaxPeeks or less. A quorum queue stores requeued messages separately, so a
// Peek at only some of the messages changes the order. On RabbitMQ, a Peek at more than 32 messages can also change it.
// On RabbitMQ 3.10, a quorum queue without a delivery limit requeues messages to its tail.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
func (c *Client) Peek(ctx context.Context, queue string, n int, examine func(*Delivery)) error {
	if err := protocol.CheckNotKeyed(queue); err != nil {
		return fmt.Errorf("reprise: %w", err)
	}
	conn, err := c.consuming.Get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.Open(ctx)
	if err != nil {
		return err
	}
	defer ch.CloseSoon(ctx, consume.LastGrace) // requeues the messages if examine panics, or after an error of Nack
	limited := consume.CountsNacks(conn.Version())
	last, err := peek(ctx, ch, queue, n, limited, examine)
	if last > 0 && ch.Nack(last, true, true) == nil {
		ch.AwaitReturn(ctx, queue, int(last))
	}
	return aboutQueue(queue, err)
}

// peek returns the tag of the last message that it received. If limited is set, MaxPeeks applies.
func peek(ctx context.Context, ch *amqpconn.Channel, queue string, n int, limited bool, examine func(*Delivery)) (last uint64, err error) {
	for range n {
		d, found, err := ch.Get(ctx, queue)
		if err != nil || !found {
			return last, err
		}
		last = d.Tag
		if limited && amqpvalue.DeliveryCount(d.Redelivered, d.Headers) >= MaxPeeks {
			return last, fmt.Errorf("queue %q: %w", queue, ErrPeekLimit)
		}
		m := messageOf(&d, queue, amqpconn.CloneTable(d.Headers))
		examine(&m)
	}
	return last, nil
}

// births contains the queues that the client has created and that the broker can still lose.
type births struct {
	mu sync.Mutex
	at map[string]time.Time
}

// add adds a queue, and removes those that are older than age.
func (b *births) add(queue string, age time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.forget(now, age)
	if age > 0 {
		if b.at == nil {
			b.at = map[string]time.Time{}
		}
		b.at[queue] = now
	}
}

// forget removes the queues that are older than age, so that the copies of a long life do not compare them again.
func (b *births) forget(now time.Time, age time.Duration) {
	maps.DeleteFunc(b.at, func(_ string, at time.Time) bool { return now.Sub(at) >= age })
}

// mature returns the time when the broker can no longer lose the given queues, or zero if this time has passed. It does not know the
// age of queues that other programs have created.
func (b *births) mature(age time.Duration, of func(queue string) bool) (at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) == 0 {
		return at
	}
	b.forget(time.Now(), age)
	for queue, born := range b.at {
		if safe := born.Add(age); safe.After(at) && of(queue) {
			at = safe
		}
	}
	return at
}

// mature returns the time when the broker can no longer lose the queues of a hop, or zero if this time has passed.
func (c *Client) mature(conn *amqpconn.Conn, hop topology.Hop) time.Time {
	return c.births.mature(conn.YoungQueue(), func(queue string) bool {
		return queue == hop.RoutingKey || slices.ContainsFunc(hop.Topology.Queues, func(q topology.Queue) bool { return q.Name == queue })
	})
}

// awaitMature waits until the broker can no longer lose a queue that the client has created.
func (c *Client) awaitMature(ctx context.Context) error {
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	return retry.Sleep(ctx, time.Until(c.births.mature(conn.YoungQueue(), func(string) bool { return true })))
}
