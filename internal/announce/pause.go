package announce

import (
	"context"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/protocol"
)

// readTimeout is the maximum time to wait for the message that contains a pause. Another program may be reading the
// message.
const readTimeout = time.Second

// state is the pause of a queue, as stored in the broker.
type state struct {
	paused bool
	pause  protocol.Pause // the zero value if another program was reading the pause
}

// checkPaused reports whether the work queue is paused. It declares the queue of the pause if mayDeclare is set. Otherwise
// it only checks whether this queue exists. RabbitMQ 4.3 and later may refuse even this check. The broker closes the channel
// after a refusal.
func checkPaused(ctx context.Context, ch *amqpconn.Channel, queue string, mayDeclare bool) (paused bool, err error) {
	q, ok := protocol.PauseQueue(queue)
	if !ok {
		return false, nil
	}
	messages, consumers, err := ch.Counts(ctx, q, !mayDeclare)
	if refusal, ok := amqpconn.RefusedChannel(err); ok && refusal.Code == amqpconn.NotFound && !mayDeclare && !unreachable(refusal) {
		return false, nil
	}
	return messages+consumers > 0, err
}

// unreachable reports whether the queue exists, but its node is down. In this case RabbitMQ replies with 404, as for a
// missing queue.
func unreachable(r *amqpconn.Refusal) bool {
	return strings.Contains(r.Text, "down or inaccessible") || strings.Contains(r.Text, "process is stopped")
}

// fetchPause returns the pause of a paused queue. It uses a separate channel, because closing a channel ends its consumer
// and requeues the message in one step. Therefore no other reader finds the queue without a message and without a
// consumer.
func fetchPause(ctx context.Context, conn *amqpconn.Conn, queue string) (p protocol.Pause, err error) {
	err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
		in, err := ch.Consume(ctx, protocol.PauseQueuePrefix+queue, "", 1, nil, func(amqpconn.Deliveries) {})
		if err != nil {
			return err
		}
		timer := time.NewTimer(readTimeout)
		defer timer.Stop()
		select {
		case d, ok := <-in:
			if ok {
				p = protocol.ReadPause(d.Body)
			}
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	})
	p.Of = protocol.PauseOfQueue
	return p, err
}

func refusedAccess(err error) bool {
	refusal, ok := amqpconn.RefusedChannel(err)
	return ok && refusal.Code == amqpconn.AccessRefused
}

// ReadPause returns the pause of a queue, and reports whether the queue is paused. It does not declare the queue of the
// pause.
func ReadPause(ctx context.Context, conn *amqpconn.Conn, queue string) (p protocol.Pause, paused bool, err error) {
	err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
		paused, err = checkPaused(ctx, ch, queue, false)
		return err
	})
	if err == nil && paused {
		p, err = fetchPause(ctx, conn, queue)
	}
	return p, paused, err
}

// Resume ends the pause of a queue.
func Resume(ctx context.Context, conn *amqpconn.Conn, queue string) error {
	return conn.Do(ctx, func(ch *amqpconn.Channel) error {
		// Unlike a purge, DeleteQueue also removes a message that a reader has received but not requeued.
		return ch.DeleteQueue(ctx, protocol.PauseQueuePrefix+queue)
	})
}
