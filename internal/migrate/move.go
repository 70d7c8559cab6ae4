package migrate

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// lull is the time without a delivery after which a move ends.
const lull = 100 * time.Millisecond

// move moves messages in their order until those that were in the queue at the start have moved, or the queue delivers no more. Each message is confirmed before it is
// acknowledged. Unlike a redrive, which resets the attempts of one message at a time, move does not change messages, and
// does not wait for each of them.
func (r *run) move(ctx context.Context, from, to string) (err error) {
	ch, err := r.conn.Open(ctx)
	if err != nil {
		return err
	}
	batch, err := r.batch(ctx, from, to)
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
	deliveries, err := ch.Consume(ctx, from, tag, batch, nil, func(amqpconn.Deliveries) {})
	if err != nil {
		return err
	}
	left, _, err := r.counts(ctx, from)
	if err != nil {
		return err
	}
	for open := true; open; {
		next, more := gather(ctx, deliveries, batch)
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
				next = append(next, amqpconn.NewDelivery(d))
			}
			open = false
		}
		if err := r.pass(ctx, ch, next, to); err != nil {
			return err
		}
		if left -= len(next); r.cfg.Progress != nil {
			r.cfg.Progress(r.result.Moved, int64(max(0, left)))
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
func gather(ctx context.Context, deliveries amqpconn.Deliveries, batch int) (all []amqpconn.Delivery, more bool) {
	timer := time.NewTimer(lull)
	defer timer.Stop()
	select {
	case d, ok := <-deliveries:
		if !ok {
			return nil, false
		}
		all = append(all, amqpconn.NewDelivery(d))
	case <-timer.C:
		return nil, true
	case <-ctx.Done():
		return nil, true
	}
	for len(all) < batch {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return all, false
			}
			all = append(all, amqpconn.NewDelivery(d))
		default:
			return all, true
		}
	}
	return all, true
}

// batch returns the number of messages that move at a time: one, if an interruption of a queue with a low delivery limit could
// remove more, or if the order matters and the broker may refuse a message and accept the next one.
func (r *run) batch(ctx context.Context, from, to string) (int, error) {
	old, err := r.broker.queue(ctx, from)
	if err != nil {
		return 0, err
	}
	if limit, set := old.limit(); set && limit < minLimit {
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

// pass publishes messages to a queue, and acknowledges those that the broker has confirmed. If the order matters, it acknowledges
// none after a message that is not confirmed.
func (r *run) pass(ctx context.Context, ch *amqpconn.Channel, deliveries []amqpconn.Delivery, to string) error {
	if len(deliveries) == 0 {
		return nil
	}
	messages := make([]*reprise.Message, len(deliveries))
	for i := range deliveries {
		messages[i] = r.copy(&deliveries[i], to)
	}
	err := r.cfg.Client.PublishBatch(ctx, messages)
	if err == nil {
		if err := ch.Ack(deliveries[len(deliveries)-1].Tag, true); err != nil {
			return err
		}
		r.result.Moved += int64(len(deliveries))
		return ch.Sync(ctx) // the broker has processed the acknowledgement
	}
	failed := map[int]bool{}
	if some, ok := errors.AsType[*reprise.BatchError](err); ok {
		for _, f := range some.Failed {
			failed[f.Index] = true
		}
		for i, d := range deliveries {
			if failed[i] && r.record.Ordered {
				break
			}
			if failed[i] || ch.Ack(d.Tag, false) != nil {
				continue
			}
			r.result.Moved++
		}
		_ = ch.Sync(ctx)
	}
	return err
}

// copy returns a message that differs from a delivery only in its exchange. A message that was published by the name of the
// queue gets the name of the other queue. The counts of deliveries begin again.
func (r *run) copy(d *amqpconn.Delivery, to string) *reprise.Message {
	read := r.in.Read(d, "").(*reprise.Delivery)
	m := &read.Message
	m.NoTimestamp = true
	_, dead := m.Headers["x-death"]
	_, copied := m.Headers["CC"]
	delete(m.Headers, "x-delivery-count")
	delete(m.Headers, "x-acquired-count")
	if m.UserID != "" && m.UserID != r.user { // the broker refuses the property
		m.Headers[reprise.HeaderUserID] = m.UserID
		m.UserID = ""
	}
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
