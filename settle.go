package reprise

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// attempt runs the handler and settles what it says. It occupies a slot only
// while the handler runs: copies await their confirms beside it.
func (w *Worker) attempt(s *session, raw amqp.Delivery) {
	d, err := w.delivery(s, raw)
	if err != nil {
		<-w.slots
		w.log.Error("cannot be handled", "message_id", raw.MessageId, "error", err)
		w.parkUnmarked(d, w.failure(d, err.Error(), 0))
		return
	}
	began := time.Now()
	err = ErrHandlerExited // stands when the handler leaves through runtime.Goexit
	// Deferred, because after Goexit nothing else would run.
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		took := time.Since(began)
		<-w.slots
		w.settle(d, err, took)
	}()
	err = w.cfg.Handler.Handle(w.handling, w.message(d))
}

// settle acknowledges a delivery, or replaces it by a copy that waits or is
// parked. The order is always: publish the copy, have it confirmed and not
// returned, only then acknowledge. Whatever fails on the way leaves the
// original unacknowledged.
func (w *Worker) settle(d *delivery, err error, took time.Duration) {
	result, delay, text := verdict(err)
	switch {
	case result == succeeded:
		d.session.acks.ack(d.DeliveryTag)
		return
	case w.handling.Err() != nil:
		// The drain took its context away: that is no verdict on the message.
		w.log.Info("given back", "message_id", d.MessageId, "attempt", d.attempt, "error", text)
		d.session.acks.giveBack(d.DeliveryTag)
		return
	}
	f := w.failure(d, text, took)
	var c replacement
	err = guard("strategy or policy", func() (err error) {
		c, err = w.copy(d, f, result, delay)
		return err
	})
	if err != nil {
		// A message whose own headers fill the frame, or a part of another
		// package that failed.
		w.log.Error("cannot be settled", "message_id", d.MessageId, "attempt", d.attempt, "error", err)
		f.Error += "\n\nparked, because it cannot be settled: " + err.Error()
		w.parkUnmarked(d, f)
		return
	}
	w.replace(d, c)
}

// parkUnmarked parks a copy with nothing written on it. It is the last resort:
// left unacknowledged, the delivery would take a place of the prefetch for as
// long as the session lives, until nothing else is delivered.
func (w *Worker) parkUnmarked(d *delivery, f topology.Failure) {
	var c replacement
	err := guard("strategy", func() (err error) {
		bare := func(headers topology.Table, _ topology.Failure) topology.Table { return headers }
		// It came in one frame, so it fits into one.
		c, err = w.fill(d, w.cfg.Strategy.Route.Failed(d.at), f, bare, 0)
		c.parked = true
		return err
	})
	if err != nil {
		w.log.Error("cannot be parked", "message_id", d.MessageId, "attempt", d.attempt, "error", err)
		return
	}
	w.replace(d, c)
}

// verdict is what a handler's error means. Its methods are the user's code,
// which panics for a nil pointer in an error's clothes.
func verdict(err error) (result outcome, delay time.Duration, text string) {
	bad := guard("error of the handler", func() error {
		if result, delay = classify(err); result != succeeded {
			text = err.Error()
		}
		return nil
	})
	if bad != nil {
		return failed, 0, bad.Error()
	}
	return result, delay, text
}

// failure is the record of an attempt, for the marks.
func (w *Worker) failure(d *delivery, text string, took time.Duration) topology.Failure {
	f := topology.Failure{
		AttemptError: topology.AttemptError{
			Attempt:  d.attempt,
			Time:     time.Now(),
			Error:    text,
			Host:     w.host,
			Duration: took,
		},
		History: d.history,
		Queue:   w.cfg.Queue,
	}
	f.Exchange, f.RoutingKey = d.history.OriginAt(d.at)
	return f
}

// replacement is the copy that takes a delivery's place.
type replacement struct {
	hop    topology.Hop
	msg    amqp.Publishing
	f      topology.Failure
	parked bool
}

// guard runs code of the user's other than the handler; its panics must not
// take the process down.
func guard(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reprise: the %s panicked: %v\n\n%s", what, v, debug.Stack())
		}
	}()
	return f()
}

// copy makes the copy of a failed delivery: one that waits, if another attempt
// is allowed and possible, else one that is parked.
func (w *Worker) copy(d *delivery, f topology.Failure, result outcome, delay time.Duration) (replacement, error) {
	left := d.history.RetriesLeft
	if left == topology.Undecided {
		left = w.cfg.Policy.MaxAttempts - d.attempt
	}
	if result != hopeless && left > 0 {
		if result == failed {
			delay = w.cfg.Policy.delay(d.attempt)
		}
		hop, err := w.cfg.Strategy.Route.Wait(d.at, delay)
		if err == nil {
			var c replacement
			if c, err = w.fill(d, hop, f, w.cfg.Strategy.Marks.Retry, roomForDeaths); err == nil {
				return c, nil
			}
		}
		f.Error += "\n\nparked, because it cannot be retried: " + err.Error()
	}
	c, err := w.fill(d, w.cfg.Strategy.Route.Failed(d.at), f, w.cfg.Strategy.Marks.Park, roomForDelivery)
	c.parked = true
	return c, err
}

// fill makes the copy for a hop. It leaves room in the header frame for what
// brokers add.
func (w *Worker) fill(d *delivery, hop topology.Hop, f topology.Failure, mark func(topology.Table, topology.Failure) topology.Table, reserve int) (replacement, error) {
	headers, msg := carried(d.Delivery, w.client.publishing.user)
	if msg.MessageId == "" {
		msg.MessageId = d.id
	}
	msg.Expiration = formatExpiration(hop.TTL)
	hop.Topology = w.cfg.own(hop.Topology)
	f.Room = headerRoom(msg, d.session.conn.Config.FrameSize, reserve)
	headers = mark(headers, f)
	if size := headers.WireSize(); size > f.Room {
		return replacement{}, fmt.Errorf("%w: the headers take %d bytes, the broker's frames have room for %d", ErrInvalidMessage, size, f.Room)
	}
	var err error
	msg.Headers, err = encodeTable(headers)
	return replacement{hop: hop, msg: msg, f: f}, err
}

// replace publishes the copy and then acknowledges the original. It tries again
// for as long as the delivery's own session lives, since only that can
// acknowledge; when the session is gone, the broker delivers the original
// again.
func (w *Worker) replace(d *delivery, c replacement) {
	log := w.log.With("message_id", c.msg.MessageId, "attempt", c.f.Attempt)
	retry := retrier{schedule: w.client.cfg.Reconnect}
	for {
		began := time.Now()
		err := w.send(d.session.ctx, c, func() {
			log.Warn("confirm is late", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "after", time.Since(began))
		})
		if err == nil {
			break
		}
		w.client.declared.forget(c.hop)
		if d.session.ctx.Err() != nil {
			log.Warn("copy dropped", "error", err, "reason", context.Cause(d.session.ctx))
			return
		}
		delay := retry.failed(time.Since(began))
		log.Warn("copy failed", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "error", err, "next_try", delay)
		if sleep(d.session.ctx, delay) != nil {
			log.Warn("copy dropped", "reason", context.Cause(d.session.ctx))
			return
		}
	}
	d.session.acks.ack(d.DeliveryTag)
	if c.parked {
		log.Error("parked", "exchange", c.hop.Exchange, "routing_key", c.hop.RoutingKey, "error", c.f.Error)
		return
	}
	log.Warn("retry", "delay", c.hop.Delay, "error", c.f.Error)
}

// send returns nil when the broker has the copy.
func (w *Worker) send(ctx context.Context, c replacement, late func()) error {
	if err := w.client.declared.ensure(ctx, c.hop); err != nil {
		return err
	}
	conn, err := w.client.publishing.get(ctx)
	if err != nil {
		return err
	}
	if err := checkSize(c.hop.Exchange, c.hop.RoutingKey, c.msg, conn.Config.FrameSize, 0); err != nil {
		return err
	}
	return w.client.copies.publish(ctx, c.hop.Exchange, c.hop.RoutingKey, c.msg, late)
}
