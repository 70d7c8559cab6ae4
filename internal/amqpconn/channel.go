package amqpconn

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// Channel is an AMQP channel for requests, deliveries and acknowledgements. All methods are
// safe for concurrent use.
//
// A request waits until the broker has answered, the channel is gone or ctx has ended. In
// the last case the broker may still perform it. A *Refusal closes the channel.
type Channel struct {
	conn *Conn
	raw  *amqp.Channel
	turn chan struct{} // semaphore of one: requests

	ctx context.Context // ends when the channel is gone, or of no more use
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
	closes := ch.raw.NotifyClose(make(chan *amqp.Error, 1))
	if err := c.tasks.Go(func() { ch.watch(closes) }); err != nil {
		return nil, err // the connection ends with the client
	}
	return ch, nil
}

// OpenWritable waits while the broker has blocked the connection, and opens a channel.
func (c *Conn) OpenWritable(ctx context.Context) (*Channel, error) {
	if err := c.waitWritable(ctx); err != nil {
		return nil, err
	}
	return c.Open(ctx)
}

func (c *Conn) openRaw() (ch *amqp.Channel, err error) {
	err = c.insist(func() error {
		ch, err = c.raw.Channel()
		return err
	})
	return ch, translated(err)
}

// closeRaw closes a channel. It is closed, whatever the error.
func (c *Conn) closeRaw(ch *amqp.Channel) { _ = c.ask(ch.Close) }

// watch ends the channel when the client reports its end.
func (ch *Channel) watch(closes <-chan *amqp.Error) {
	reason, ok := <-closes
	if !ok {
		ch.end(ErrGone) // closed on this side, or before NotifyClose
		return
	}
	ch.end(ended(reason))
}

// Context ends when the channel is gone, or of no more use since the broker has left a request
// unanswered. Its cause is the reason.
func (ch *Channel) Context() context.Context { return ch.ctx }

// IsClosed reports whether the channel is closed. The end of Context may follow a moment later.
func (ch *Channel) IsClosed() bool { return ch.raw.IsClosed() }

// Close closes the channel after the request that is under way, unless the broker has left
// that unanswered. It returns at the latest
// when ctx ends; the channel is closed later then, at the latest with its connection.
// Nothing may be written on the channel afterwards: an ack that follows the end of its
// channel ends the connection (504).
func (ch *Channel) Close(ctx context.Context) {
	_ = call(ctx, ch.conn.tasks, func() error {
		select {
		case ch.turn <- struct{}{}: // a request under way would take the answer for its own
			defer func() { <-ch.turn }()
		case <-ch.ctx.Done(): // there is no answer to that request, or the channel is closed already
		}
		ch.conn.closeRaw(ch.raw)
		return nil
	}, nil) // a closed client has closed it
}

// Ping makes the broker answer on the connection, over a new channel.
func (c *Conn) Ping(ctx context.Context) error {
	ch, err := c.OpenWritable(ctx)
	if err != nil {
		return err
	}
	return ch.request(ctx, ch.raw.Close, nil)
}

// Do runs f with a new channel, which is closed afterwards. It waits while the broker has
// blocked the connection.
func (c *Conn) Do(ctx context.Context, f func(ch *Channel) error) error {
	ch, err := c.OpenWritable(ctx)
	if err != nil {
		return err
	}
	err = f(ch)
	ch.Close(ctx)
	return err
}

// Sync returns when the broker's channel has processed all that was written before. Its
// request changes nothing: the prefetch it sets is that of consumers to come, and Consume
// sets its own.
func (ch *Channel) Sync(ctx context.Context) error {
	return ch.request(ctx, func() error { return ch.raw.Qos(1, 0, false) }, nil)
}

// Consume begins to consume, with manual acknowledgements and a prefetch of its own. If ctx ends before the broker
// answers that it does, late is called with the deliveries, on another goroutine.
func (ch *Channel) Consume(ctx context.Context, queue, tag string, prefetch int, args topology.Table, late func(Deliveries)) (deliveries Deliveries, err error) {
	var d Deliveries
	err = ch.request(ctx, func() (err error) {
		if err := ch.raw.Qos(prefetch, 0, false); err != nil {
			return err
		}
		d, err = ch.raw.Consume(queue, tag, false, false, false, false, clientTable(args))
		return err
	}, func() { late(d) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Cancel ends a consumer. Its deliveries end, once those that had come are taken.
func (ch *Channel) Cancel(ctx context.Context, tag string) error {
	return ch.request(ctx, func() error { return ch.raw.Cancel(tag, false) }, nil)
}

// Get takes one message, and reports whether there was one.
func (ch *Channel) Get(ctx context.Context, queue string) (Delivery, bool, error) {
	var d amqp.Delivery
	var found bool
	err := ch.request(ctx, func() (err error) {
		d, found, err = ch.raw.Get(queue, false)
		return err
	}, nil)
	if err != nil || !found {
		return Delivery{}, false, err
	}
	return NewDelivery(d), true, nil
}

// Ack acknowledges a delivery, and all before it if multiple. The broker does not answer.
func (ch *Channel) Ack(tag uint64, multiple bool) error {
	return translated(ch.raw.Ack(tag, multiple))
}

// Nack returns deliveries to their queue, or lets them go.
func (ch *Channel) Nack(tag uint64, multiple, requeue bool) error {
	return translated(ch.raw.Nack(tag, multiple, requeue))
}

// Reject is Nack for one delivery. RabbitMQ counts it towards the delivery limit.
func (ch *Channel) Reject(tag uint64, requeue bool) error {
	return translated(ch.raw.Reject(tag, requeue))
}

// Depth returns the number of ready messages of a queue.
func (ch *Channel) Depth(ctx context.Context, queue string) (n int, err error) {
	n, _, err = ch.Counts(ctx, topology.Queue{Name: queue}, true)
	return n, err
}

// CheckExchange returns a *Refusal if there is no such exchange, or this user may not use it.
func (ch *Channel) CheckExchange(ctx context.Context, name string) error {
	return ch.request(ctx, func() error { // the kind is not compared
		return ch.raw.ExchangeDeclarePassive(name, amqp.ExchangeDirect, true, false, false, false, nil)
	}, nil)
}

// DeclareExchange declares an exchange.
func (ch *Channel) DeclareExchange(ctx context.Context, e topology.Exchange) error {
	args, err := EncodeTable(e.Args)
	if err != nil {
		return err
	}
	return ch.request(ctx, func() error {
		return ch.raw.ExchangeDeclare(e.Name, e.Kind, !e.Transient, e.AutoDelete, e.Internal, false, clientTable(args))
	}, nil)
}

// DeclareQueue declares a queue, or if passive, only checks that it exists.
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
	return ch.request(ctx, func() error {
		if b.ToExchange != "" {
			return ch.raw.ExchangeBind(b.ToExchange, b.RoutingKey, b.Exchange, false, clientTable(args))
		}
		return ch.raw.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, clientTable(args))
	}, nil)
}

// CheckTopology returns an error for arguments that cannot be sent.
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
