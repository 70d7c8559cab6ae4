package migrate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// lull is the time without a delivery after which a passage ends.
const lull = 100 * time.Millisecond

// Passage moves messages from queues, in their order. Each message is confirmed before it is acknowledged. Unlike a redrive,
// which resets the attempts of one message at a time, a passage does not wait for each message.
type Passage struct {
	From   *amqpconn.Conn
	Client *reprise.Client                           // publishes
	Copy   func(*amqpconn.Delivery) *reprise.Message // see Unchanged

	Args  topology.Table // of the consumer
	Batch int            // maximum number of messages that are published and not acknowledged
	Order bool           // acknowledge no message after one that is not confirmed
	Lull  time.Duration  // time without a delivery after which Move ends

	Progress func(moved, left int64) // or nil
	Moved    int64
}

// Move moves messages until those that were in the queue at the start have moved, or the queue delivers no more.
func (p *Passage) Move(ctx context.Context, from string) (err error) {
	ch, err := p.From.Open(ctx)
	if err != nil {
		return err
	}
	const tag = "reprise migrate"
	defer func() {
		if err != nil {
			requeueAll(ch, tag)
		}
		ch.CloseSoon(ctx, time.Second)
	}()
	left, _, err := ch.Counts(ctx, topology.Queue{Name: from}, true)
	if err != nil {
		return err
	}
	deliveries, err := ch.Consume(ctx, from, tag, p.Batch, p.Args, func(amqpconn.Deliveries) {})
	if err != nil {
		return err
	}
	for open, known := true, left; open; {
		var next []amqpconn.Delivery
		more := true
		if left > 0 || known == 0 {
			next, more = p.gather(ctx, deliveries)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !more {
			return errors.Join(amqpconn.ErrGone, context.Cause(ch.Context()))
		}
		if len(next) == 0 || left <= 0 {
			// The broker may deliver messages before it processes the cancellation.
			if err := ch.Cancel(ctx, tag); err != nil {
				return err
			}
			for d := range deliveries {
				next = append(next, d.Delivery)
			}
			open = false
		}
		if err := p.pass(ctx, ch, next); err != nil {
			return err
		}
		if left -= len(next); p.Progress != nil {
			p.Progress(p.Moved, int64(max(0, left)))
		}
	}
	return nil
}

// requeueAll ends a consumer and returns its messages. RabbitMQ 4.3 does not count this as a failed delivery, unlike a closed channel.
func requeueAll(ch *amqpconn.Channel, tag string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if ch.Cancel(ctx, tag) == nil {
		_ = ch.Nack(0, true, true)
	}
}

// gather returns the deliveries that have arrived, at most a batch. It waits for the first one until the lull. more is false if the
// consumer has ended.
func (p *Passage) gather(ctx context.Context, deliveries amqpconn.Deliveries) (all []amqpconn.Delivery, more bool) {
	timer := time.NewTimer(p.Lull)
	defer timer.Stop()
	select {
	case d, ok := <-deliveries:
		if !ok {
			return nil, false
		}
		all = append(all, d.Delivery)
	case <-timer.C:
		return nil, true
	case <-ctx.Done():
		return nil, true
	}
	for len(all) < p.Batch {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return all, false
			}
			all = append(all, d.Delivery)
		default:
			return all, true
		}
	}
	return all, true
}

// pass publishes messages, and acknowledges those that the broker has confirmed.
func (p *Passage) pass(ctx context.Context, ch *amqpconn.Channel, deliveries []amqpconn.Delivery) error {
	if len(deliveries) == 0 {
		return nil
	}
	messages := make([]*reprise.Message, len(deliveries))
	for i := range deliveries {
		messages[i] = p.Copy(&deliveries[i])
	}
	err := p.Client.PublishBatch(ctx, messages)
	if err == nil {
		if err := ch.Ack(deliveries[len(deliveries)-1].Tag, true); err != nil {
			return err
		}
		p.Moved += int64(len(deliveries))
		return ch.Sync(ctx) // the broker has processed the acknowledgement
	}
	failed := map[int]bool{}
	if some, ok := errors.AsType[*reprise.BatchError](err); ok {
		for _, f := range some.Failed {
			failed[f.Index] = true
		}
		for i, d := range deliveries {
			if failed[i] && p.Order {
				break
			}
			if failed[i] || ch.Ack(d.Tag, false) != nil {
				continue
			}
			p.Moved++
		}
		_ = ch.Sync(ctx)
	}
	return err
}

// Unchanged returns the message of a delivery, for a client that logs in as user. The counts of deliveries begin again, because the
// broker writes them. The broker would refuse the user-id of another user.
func Unchanged(in inner.Client, d *amqpconn.Delivery, user string) *reprise.Message {
	m := &in.Read(d, "").(*reprise.Delivery).Message
	m.NoTimestamp = true
	delete(m.Headers, "x-delivery-count")
	delete(m.Headers, "x-acquired-count")
	if m.UserID != "" && m.UserID != user {
		m.Headers[reprise.HeaderUserID] = m.UserID
		m.UserID = ""
	}
	return m
}

// batch returns the number of messages that move at a time: one, if an interruption of a queue with a low delivery limit could
// remove more, or if the order matters and the broker may refuse a message and accept the next one.
func (r *run) batch(ctx context.Context, from, to string) (int, error) {
	old, err := r.broker.queue(ctx, from)
	if err != nil {
		return 0, err
	}
	if limit, set := old.limit(); set && limit < MinLimit {
		return 1, nil
	}
	if !r.record.Ordered {
		return r.cfg.Batch, nil
	}
	next, err := r.broker.queue(ctx, to)
	if err != nil {
		return 0, err
	}
	overflow, _ := mgmtapi.Effective(next.Kind, next.Args, next.Effective, "overflow")
	if text, _ := overflow.(string); strings.HasPrefix(text, "reject-publish") {
		return 1, nil
	}
	return r.cfg.Batch, nil
}

// move moves the messages of a queue to another queue of the migration.
func (r *run) move(ctx context.Context, from, to string) error {
	batch, err := r.batch(ctx, from, to)
	if err != nil {
		return err
	}
	p := Passage{
		From: r.conn, Client: r.cfg.Client, Batch: batch, Order: r.record.Ordered, Lull: lull,
		Copy: func(d *amqpconn.Delivery) *reprise.Message { return r.copy(d, to) },
		Progress: func(moved, left int64) {
			if r.cfg.Progress != nil {
				r.cfg.Progress(r.result.Moved+moved, left)
			}
		},
	}
	err = p.Move(ctx, from)
	r.result.Moved += p.Moved
	return err
}

// copy returns a message that differs from a delivery only in its exchange. A message that was published by the name of the
// queue gets the name of the other queue.
func (r *run) copy(d *amqpconn.Delivery, to string) *reprise.Message {
	m := Unchanged(r.in, d, r.user)
	_, dead := m.Headers["x-death"]
	_, copied := m.Headers["CC"]
	if m.Exchange == "" && m.RoutingKey == r.record.Queue && !dead {
		r.byName++
	}
	switch {
	case m.Exchange == "" && !copied: // with the header CC, the broker would also route it to other queues
		m.RoutingKey = to
	default:
		m.Exchange = r.record.mover().Name
	}
	return m
}
