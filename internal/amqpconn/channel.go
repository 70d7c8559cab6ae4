package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/topology"
)

// Channel is an AMQP channel for requests, deliveries and acknowledgements. All methods are safe for concurrent use.
//
// A request returns when the broker has answered, the channel has closed, ctx is canceled or Conn.Timeout has passed.
// In the last two cases the broker may still perform the request. If a request returns a *Refusal, the broker has
// closed the channel.
type Channel struct {
	conn *Conn
	raw  channel
	turn chan struct{} // semaphore with one slot, for requests

	ctx context.Context // canceled when the channel is closed or no longer usable
	end context.CancelCauseFunc
}

// Open opens a channel.
func (c *Conn) Open(ctx context.Context) (*Channel, error) {
	ch := &Channel{conn: c, turn: make(chan struct{}, 1)}
	ch.ctx, ch.end = context.WithCancelCause(context.Background())
	err := call(ctx, c.tasks, func() (err error) {
		ch.raw, err = c.openRaw()
		return err
	}, func() { c.closeRaw(ch.raw) })
	if err != nil {
		return nil, err
	}
	if err := c.tasks.Go(ch.watch); err != nil {
		return nil, err // after Tasks.Close, the connection closes next
	}
	return ch, nil
}

// OpenWritable waits until the connection is not blocked, and opens a channel.
func (c *Conn) OpenWritable(ctx context.Context) (*Channel, error) {
	if err := c.waitWritable(ctx); err != nil {
		return nil, err
	}
	return c.Open(ctx)
}

func (c *Conn) openRaw() (ch channel, err error) {
	err = c.askConnection(func() error {
		ch, err = c.raw.open()
		return err
	})
	return ch, translated(err)
}

// closeRaw closes a channel. The channel is closed even if Close returns an error.
func (c *Conn) closeRaw(ch channel) { _ = c.ask(ch.close) }

// watch cancels the Context of the channel when the client reports that the channel has closed.
func (ch *Channel) watch() {
	<-ch.raw.ended()
	ch.end(ch.raw.err())
}

// Context returns a context that is canceled when the channel is closed, or no longer usable because the broker has not
// answered a request. The cancellation cause is the reason.
func (ch *Channel) Context() context.Context { return ch.ctx }

// IsClosed reports whether the channel is closed. The cancellation of Context may follow a moment later.
func (ch *Channel) IsClosed() bool { return ch.raw.isClosed() }

// Close closes the channel. Before that, it waits for the request in progress, at most until the answer is late. It
// returns when the channel is closed or ctx is canceled. If ctx is canceled first, the channel closes later, at the
// latest with its connection. Callers must not write to the channel afterwards, because the broker closes the connection
// if it receives an ack on a closed channel (504).
func (ch *Channel) Close(ctx context.Context) {
	_ = call(ctx, ch.conn.tasks, func() error {
		select {
		case ch.turn <- struct{}{}: // otherwise a request in progress could receive the answer to Close
			defer func() { <-ch.turn }()
		case <-ch.ctx.Done(): // the request has no answer, or the channel is already closed
		}
		ch.conn.closeRaw(ch.raw)
		return nil
	}, nil) // after Tasks.Close, the channel closes with its connection
}

// Ping checks that the broker answers on the connection. It uses a new channel.
func (c *Conn) Ping(ctx context.Context) error {
	ch, err := c.OpenWritable(ctx)
	if err != nil {
		return err
	}
	return ch.request(ctx, ch.raw.close, nil)
}

// Do waits until the connection is not blocked, runs f with a new channel, and then closes the channel.
func (c *Conn) Do(ctx context.Context, f func(ch *Channel) error) error {
	ch, err := c.OpenWritable(ctx)
	if err != nil {
		return err
	}
	err = f(ch)
	ch.Close(ctx)
	return err
}

// Sync returns when the broker's channel has processed all earlier writes. It sends basic.qos, which has no other effect,
// because Consume sets the prefetch again.
func (ch *Channel) Sync(ctx context.Context) error {
	return ch.request(ctx, func() error { return ch.raw.qos(1) }, nil)
}

// Consume starts a consumer with manual acknowledgements and the given prefetch. If ctx is canceled before the broker
// answers, but the consumer starts anyway, Consume calls late with the deliveries, on another goroutine.
func (ch *Channel) Consume(ctx context.Context, queue, tag string, prefetch int, args topology.Table, late func(Deliveries)) (deliveries Deliveries, err error) {
	var d Deliveries
	err = ch.request(ctx, func() (err error) {
		if err := ch.raw.qos(prefetch); err != nil {
			return err
		}
		d, err = ch.raw.consume(consumer{queue: queue, tag: tag, prefetch: prefetch, args: args})
		return err
	}, func() { late(d) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// IsStream reports whether a queue is a stream. For this, it sends basic.consume, which RabbitMQ always refuses: for a stream,
// because the channel has no prefetch, and for other queues because of the argument. The channel is closed afterwards.
func (ch *Channel) IsStream(ctx context.Context, queue string) (bool, error) {
	if !ch.conn.IsRabbitMQ() {
		return false, nil
	}
	err := ch.request(ctx, func() error {
		_, err := ch.raw.consume(consumer{queue: queue, exclusive: true, args: topology.Table{"x-stream-offset": "next"}})
		return err
	}, nil)
	if refusal, ok := RefusedChannel(err); ok {
		return refusal.Code == PreconditionFailed && strings.Contains(refusal.Text, "prefetch count is not set"), nil
	}
	return false, err
}

// Cancel cancels a consumer. The channel of deliveries closes after all received deliveries have been read.
func (ch *Channel) Cancel(ctx context.Context, tag string) error {
	return ch.request(ctx, func() error { return ch.raw.cancel(tag) }, nil)
}

// Get takes one message from a queue, and reports whether the queue had a message.
func (ch *Channel) Get(ctx context.Context, queue string) (Delivery, bool, error) {
	var d Delivery
	var found bool
	err := ch.request(ctx, func() (err error) {
		d, found, err = ch.raw.get(queue)
		return err
	}, nil)
	if err != nil || !found {
		return Delivery{}, false, err
	}
	return d, true, nil
}

// Ack acknowledges a delivery, and all earlier deliveries if multiple is set. The broker does not answer.
func (ch *Channel) Ack(tag uint64, multiple bool) error {
	return translated(ch.raw.ack(tag, multiple))
}

// Nack rejects a delivery, and all earlier deliveries if multiple is set. The broker requeues them if requeue is set.
// Otherwise it dead-letters or discards them.
func (ch *Channel) Nack(tag uint64, multiple, requeue bool) error {
	return translated(ch.raw.nack(tag, multiple, requeue))
}

// Reject rejects one delivery. RabbitMQ counts it towards the delivery limit. Since 4.3, RabbitMQ does not count a Nack
// that requeues.
func (ch *Channel) Reject(tag uint64, requeue bool) error {
	return translated(ch.raw.reject(tag, requeue))
}

// Depth returns the number of ready messages of a queue.
func (ch *Channel) Depth(ctx context.Context, queue string) (n int, err error) {
	n, _, err = ch.Counts(ctx, topology.Queue{Name: queue}, true)
	return n, err
}

// CheckExchange returns a *Refusal if the exchange does not exist, or if the user may not access it.
func (ch *Channel) CheckExchange(ctx context.Context, name string) error {
	return ch.request(ctx, func() error { // the broker does not compare the kind
		return ch.raw.declareExchange(topology.Exchange{Name: name, Kind: topology.Direct}, true)
	}, nil)
}

// DeclareExchange declares an exchange.
func (ch *Channel) DeclareExchange(ctx context.Context, e topology.Exchange) error {
	args, err := EncodeTable(e.Args)
	if err != nil {
		return err
	}
	e.Args = args
	return ch.request(ctx, func() error { return ch.raw.declareExchange(e, false) }, nil)
}

// DeclareQueue declares a queue. If passive is set, it only checks that the queue exists.
func (ch *Channel) DeclareQueue(ctx context.Context, q topology.Queue, passive bool) error {
	_, _, err := ch.Counts(ctx, q, passive)
	return err
}

// Bind declares a binding.
func (ch *Channel) Bind(ctx context.Context, b topology.Binding) error {
	args, err := EncodeTable(b.Args)
	if err != nil {
		return err
	}
	b.Args = args
	return ch.request(ctx, func() error { return ch.raw.bind(b) }, nil)
}

// CheckTopology returns an error if AMQP cannot represent the arguments of an exchange, a queue or a binding.
func CheckTopology(t topology.Topology) error {
	var errs []error
	check := func(kind, name string, args topology.Table) {
		if _, err := EncodeTable(args); err != nil {
			errs = append(errs, fmt.Errorf("reprise: cannot declare %s %q with these arguments: %w", kind, name, err))
		}
	}
	for _, e := range t.Exchanges {
		check("exchange", e.Name, e.Args)
	}
	for _, q := range t.Queues {
		check("queue", q.Name, q.Args)
	}
	for _, b := range t.Bindings {
		check("binding", b.String(), b.Args)
	}
	return errors.Join(errs...)
}
