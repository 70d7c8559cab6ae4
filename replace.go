package reprise

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Order says what comes first where a copy takes a failed message's place: publishing
// the copy, or acknowledging the original.
type Order int

const (
	// PublishThenAck publishes the copy, waits until the broker has it, and then
	// acknowledges the original. A crash in between leaves both: it can
	// duplicate, and cannot lose. The default.
	PublishThenAck Order = iota

	// AckThenPublish acknowledges the original, waits until the broker has done so,
	// and then publishes the copy, once: where the confirm is lost, it is not
	// published again. A crash in between leaves neither: it can lose, and cannot
	// duplicate. It is for messages that are worth less than the harm a second one
	// does. It costs a round trip more. Prefetch and Concurrency are at most 32: see
	// docs/guarantees.md.
	AckThenPublish
)

// replace settles a failed delivery: it publishes the copy and acknowledges the
// original, in the Order that is wanted, or leaves it to the broker.
func (w *Worker) replace(d *delivery, c *replacement) {
	var gone *Event
	switch {
	case c.hop.Way == topology.Requeue:
		gone = w.reject(d, ack.Requeue)
	case c.hop.Way == topology.DeadLetter:
		gone = w.reject(d, ack.DeadLetter)
	default:
		gone = w.swap(d, c)
	}
	if gone != nil {
		w.settled(*gone, d)
		return
	}
	for _, b := range d.burst {
		b.session.acks.Settle(b.Tag, ack.Ack) // what stands for them is safe
	}
	switch c.kind {
	case parked:
		w.log.Error("parked", "message_id", c.messageID(d), "attempt", c.f.Attempt, "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "reason", c.f.Reason, "error", logged(c.f.Error))
		w.settled(Event{Kind: EventParked, Err: errText(c.f.Error)}, d)
	case retried:
		w.log.Warn("retry", "message_id", c.messageID(d), "attempt", c.f.Attempt, "delay", c.hop.Delay, "error", logged(c.f.Error))
		w.settled(Event{Kind: EventRetried, Delay: c.hop.Delay, Err: errText(c.f.Error)}, d)
	}
}

func (c *replacement) messageID(d *delivery) string {
	if c.msg.MessageID != "" {
		return c.msg.MessageID
	}
	return d.MessageID
}

// about returns the logger of what is said about a copy.
func (w *Worker) about(d *delivery, c *replacement) *slog.Logger {
	return w.log.With("message_id", c.messageID(d), "attempt", c.f.Attempt)
}

// way settles a delivery. It returns nil when that is done, and else what became of it.
type way func(d *delivery, c *replacement) *Event

// reject leaves the delivery to the broker.
func (w *Worker) reject(d *delivery, how ack.Verb) *Event {
	if !d.session.acks.Settle(d.Tag, how) || d.session.ctx.Err() != nil {
		return &Event{Kind: EventDropped, Err: errLostWithSession}
	}
	return nil
}

// publishThenAck publishes the copy, and acknowledges the original once the broker
// has it. It tries for as long as the delivery's own session lives, since only
// that can acknowledge; when the session is gone, the broker delivers the original
// again. It gives the original back before the broker loses patience with it, and
// with all that was delivered beside it.
func (w *Worker) publishThenAck(d *delivery, c *replacement) *Event {
	left := max(w.cfg.overdue().after-time.Since(d.arrived), w.client.cfg.ConfirmTimeout) // the handler may have taken long
	ctx, cancel := context.WithTimeoutCause(d.session.ctx, left, errOverdue)
	defer cancel()
	err := w.insist(ctx, d, c, tryAgain)
	switch {
	case err == nil:
		d.session.acks.Settle(d.Tag, ack.Ack)
		return nil
	case d.session.ctx.Err() != nil:
		w.about(d, c).Warn("copy dropped", "error", err, "reason", context.Cause(d.session.ctx))
		return &Event{Kind: EventDropped, Err: err}
	}
	w.about(d, c).Warn("given back", "error", err)
	d.giveBack()
	return &Event{Kind: EventGivenBack, Err: err}
}

// ackThenPublish acknowledges the original, and publishes the copy once the broker
// is known to have forgotten it. From then on the message is in this process
// only: until the worker gives up, it tries on whatever connection there is, as
// long as it is known that the broker has not got it.
func (w *Worker) ackThenPublish(d *delivery, c *replacement) *Event {
	if d.session.ctx.Err() != nil {
		w.about(d, c).Warn("copy dropped", "error", errLostWithSession, "reason", context.Cause(d.session.ctx))
		return &Event{Kind: EventDropped, Err: errLostWithSession}
	}
	if !d.session.acks.AckNow(d.Tag) {
		// Published, it would be there twice if the broker has not heard.
		w.about(d, c).Error("message may be lost", "error", errLostWithSession, "reason", "it is not known whether the broker has acknowledged it")
		return &Event{Kind: EventLost, Err: errLostWithSession}
	}
	switch err := w.insist(w.settling, d, c, unlessSent); {
	case errors.Is(err, ErrUnconfirmed):
		w.about(d, c).Error("message may be lost", "error", err, "reason", "it is not known whether the broker has its copy")
		return &Event{Kind: EventLost, Err: err}
	case err != nil:
		w.about(d, c).Error("message lost", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "error", err)
		return &Event{Kind: EventLost, Err: err}
	}
	return nil
}

var errOverdue = errors.New("reprise: its copy could not be published in time: see ConsumerTimeout")

// goOn says whether a copy that could not be published is to be tried again: nil, or the
// error to give up with.
type goOn func(err error) error

// tryAgain never gives a copy up.
func tryAgain(error) error { return nil }

// unlessSent gives a copy up that the broker may have: its original is acknowledged,
// and there shall not be two of them.
func unlessSent(err error) error {
	if errors.Is(err, ErrUnconfirmed) {
		return err
	}
	return nil
}

// insist publishes a copy until the broker has it, or ctx ends, or again forbids it. One
// that cannot be sent becomes one that is parked as it came.
func (w *Worker) insist(ctx context.Context, d *delivery, c *replacement, again goOn) error {
	retrier := retry.Retrier{Schedule: w.client.cfg.Reconnect}
	for {
		began := time.Now()
		err := w.send(ctx, c, func() {
			w.about(d, c).Warn("confirm is late", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "after", time.Since(began))
		})
		if err == nil {
			return nil
		}
		w.client.declared.forget(c.hop)
		if ctx.Err() != nil {
			return err
		}
		if errors.Is(err, ErrInvalidMessage) && !c.unmarked {
			w.about(d, c).Error("cannot be settled", "error", err)
			if bare, refused := w.unmarked(d, c, err); refused == nil {
				*c = *bare
				continue
			}
		}
		if end := again(err); end != nil {
			return end
		}
		delay := retrier.Failed(time.Since(began))
		w.about(d, c).Warn("copy failed", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "error", err, retry.Next(delay))
		w.observe(Event{Kind: EventCopyFailed, MessageID: d.MessageID, Attempt: d.attempt, Delay: delay, Err: err})
		if retry.Sleep(ctx, delay) != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// send returns nil when the broker has the copy.
func (w *Worker) send(ctx context.Context, c *replacement, late func()) error {
	if err := w.client.declared.ensure(ctx, c.hop); err != nil {
		return err
	}
	conn, err := w.client.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := amqpconn.CheckSize(c.hop.Exchange, c.hop.RoutingKey, &c.msg, conn.FrameSize(), 0); err != nil {
		return err
	}
	return w.client.copies.publish(ctx, c.hop.Exchange, c.hop.RoutingKey, c.msg, late)
}
