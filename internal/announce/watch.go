package announce

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// watchQueue returns the queue of a watcher. It stores at most 10,000 statuses, each for at most a minute.
func watchQueue() topology.Queue {
	return topology.Queue{
		Name: protocol.WorkersExchange + "." + newID(), Transient: true, Exclusive: true, AutoDelete: true,
		Args: topology.Table{"x-queue-type": "classic", "x-max-length": int64(10_000), "x-message-ttl": int64(60_000)},
	}
}

// Watch passes the statuses of all workers to the function each. It calls ready after each subscription, both at the
// start and after an interruption. It returns when ctx is done, the link is closed or the broker refuses a request.
func Watch(ctx context.Context, link *amqpconn.Link, reconnect backoff.Backoff, ready func(context.Context), each func(protocol.WorkerStatus)) error {
	retrier := retry.Retrier{Schedule: reconnect}
	for {
		began := time.Now()
		conn, err := link.Get(ctx)
		if err != nil {
			return err
		}
		err = conn.Do(ctx, func(ch *amqpconn.Channel) error { return watch(ctx, ch, ready, each) })
		if _, refused := amqpconn.RefusedChannel(err); refused || ctx.Err() != nil {
			return err
		}
		if err := retry.Sleep(ctx, retrier.Failed(time.Since(began))); err != nil {
			return err
		}
	}
}

func watch(ctx context.Context, ch *amqpconn.Channel, ready func(context.Context), each func(protocol.WorkerStatus)) error {
	if err := ch.DeclareExchange(ctx, protocol.Workers().Exchanges[0]); err != nil {
		return err
	}
	q := watchQueue()
	if err := ch.DeclareQueue(ctx, q, false); err != nil {
		return err
	}
	if err := ch.Bind(ctx, topology.Binding{Exchange: protocol.WorkersExchange, Queue: q.Name, RoutingKey: "#"}); err != nil {
		return err
	}
	statuses, err := ch.Listen(ctx, q.Name, true)
	if err != nil {
		return err
	}
	ready(ctx)
	for {
		select {
		case in, ok := <-statuses:
			if !ok {
				return amqpconn.ErrGone
			}
			if s, ok := protocol.ReadWorkerStatus(in.Body); ok {
				each(s)
			}
		case <-ch.Context().Done():
			return context.Cause(ch.Context())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
