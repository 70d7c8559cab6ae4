package amqpconn

import (
	"context"

	"github.com/reprisemq/reprise/topology"
)

// Counts declares a queue, and counts its ready messages and its consumers. If passive is set, the queue must exist, and
// Counts does not declare it.
func (ch *Channel) Counts(ctx context.Context, q topology.Queue, passive bool) (messages, consumers int, err error) {
	args, err := EncodeTable(q.Args)
	if err != nil {
		return 0, 0, err
	}
	q.Args = args
	var ready, used int
	err = ch.request(ctx, func() (err error) {
		ready, used, err = ch.raw.declareQueue(q, passive)
		return err
	}, nil)
	if err != nil {
		return 0, 0, err
	}
	return ready, used, nil
}

// DeleteQueue deletes a queue and its messages, if the queue exists.
func (ch *Channel) DeleteQueue(ctx context.Context, queue string) error {
	return ch.request(ctx, func() error { return ch.raw.deleteQueue(queue, false) }, nil)
}

// DeleteIdleQueue deletes a queue that has neither ready messages nor consumers, and otherwise returns a *Refusal (406). A
// quorum queue of RabbitMQ does not support this: RabbitMQ closes the connection (540).
func (ch *Channel) DeleteIdleQueue(ctx context.Context, queue string) error {
	return ch.request(ctx, func() error { return ch.raw.deleteQueue(queue, true) }, nil)
}

// DeleteExchange deletes an exchange, if it exists.
func (ch *Channel) DeleteExchange(ctx context.Context, exchange string) error {
	return ch.request(ctx, func() error { return ch.raw.deleteExchange(exchange) }, nil)
}

// Unbind deletes a binding, if it exists.
func (ch *Channel) Unbind(ctx context.Context, b topology.Binding) error {
	args, err := EncodeTable(b.Args)
	if err != nil {
		return err
	}
	b.Args = args
	return ch.request(ctx, func() error { return ch.raw.unbind(b) }, nil)
}

// Listen starts a consumer without acknowledgements, which may be the only one of the queue. If ctx is canceled before the
// broker answers, the channel is no longer usable.
func (ch *Channel) Listen(ctx context.Context, queue string, exclusive bool) (deliveries Deliveries, err error) {
	var d Deliveries
	err = ch.request(ctx, func() (err error) {
		d, err = ch.raw.consume(consumer{queue: queue, noAck: true, exclusive: exclusive})
		return err
	}, func() { ch.end(ErrGone) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Send writes a transient message that is not mandatory. The broker does not answer, unless it closes the channel.
func (ch *Channel) Send(exchange, key string, m *Message) error {
	return translated(ch.raw.send(exchange, key, m))
}
