package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// This file contains the steps in which a worker processes a delivery, from top to bottom, with the promise that each step
// keeps:
//
//	handle    A handler receives a message at most as often as the Policy and the CrashLimit permit.
//	settle    The complete plan exists before anything is sent: see planner.
//	report    The archive that replayed a message learns the outcome before the message leaves its queue.
//	carryOut  The original stays unacknowledged until the broker has confirmed the copy. Whatever the plan cannot do,
//	          the broker redelivers. With AckThenPublish, at most one of the two exists instead.
//	settled   The observer receives exactly one final event for each delivery.

// handle calls the handler and settles the delivery according to the result. The delivery occupies one of the Concurrency
// slots only while the handler runs, not while its copy waits for the confirm.
func (w *Worker) handle(ctx context.Context, d *delivery) {
	w.laneOf(d)
	if w.refuse(d) {
		d.End(ErrNotAttempted, 0, nil)
		w.settle(ctx, d)
		return
	}
	began := time.Now()
	d.Begin(began)
	w.observe(Event{Kind: EventStarted, MessageID: d.id, Attempt: d.Attempt, Age: d.age(began)})
	err := ErrHandlerExited // remains set if the handler calls runtime.Goexit
	// Deferred, because Goexit runs only deferred functions.
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		d.result = classified(err)
		d.result.took = time.Since(began)
		w.observe(Event{Kind: EventHandled, MessageID: d.id, Delivery: d.handlerMessage(), Attempt: d.Attempt, Err: err, Took: d.result.took})
		if d.result.outcome != succeeded && ctx.Err() != nil {
			err = ErrNotAttempted
		}
		d.End(err, d.result.pause, d.result.err)
		w.settle(ctx, d)
	}()
	d.message, d.handled = w.message(d), true
	handling, release := d.HandlerContext(ctx)
	defer release()
	err = w.handler.Handle(d.context(handling), &d.message)
}

// refuse reports whether the handler must not receive a delivery. It sets the result of such a delivery.
func (w *Worker) refuse(d *delivery) bool {
	r := &d.result
	switch unreadable := amqpconn.Unreadable(d.Headers); {
	case unreadable != nil && !w.cfg.AsDelivered:
		w.log.Error("cannot be handled", "message_id", d.id, "error", unreadable)
		*r = result{text: unreadable.Error(), err: unreadable}
	case d.Err != nil:
		w.log.Error("cannot be handled", "message_id", d.id, "error", d.Err)
		*r = result{text: d.Err.Error(), err: d.Err}
	case w.held.recall(d):
		return true
	case exhausted(d, w.planner.policyOf(d)):
		*r = result{reason: "attempts made", text: "not handled again: all its attempts were made, and the last one was never settled"}
	case d.Crashed():
		*r = result{reason: "never settled", text: fmt.Sprintf("not handled again: %d deliveries ended before the message was settled (CrashLimit %d)", d.Crashes, d.CrashLimit)}
	default:
		return false
	}
	r.outcome, r.err = unretryable, cmp.Or[error](r.err, errText(r.text))
	return true
}

// exhausted reports whether a redelivered message has no attempt left. If the broker counts the attempts, an attempt
// that terminated the process also counts.
func exhausted(d *delivery, p Policy) bool {
	return d.Redelivered && d.History.RetriesLeft == topology.Undecided && d.History.Attempts >= p.maxAttempts()
}

// settle computes the plan of a delivery and carries it out.
func (w *Worker) settle(ctx context.Context, d *delivery) {
	p := w.planner.plan(d, ctx.Err() != nil, time.Now())
	w.report(ctx, p.reports)
	if unsettled := w.carryOut(d, p); unsettled != nil {
		w.settled(d, *unsettled)
		return
	}
	w.settled(d, w.conclude(d, p))
	if !p.mature.IsZero() { // publishThenAck has not acknowledged the original
		d.AckAt(p.mature)
	}
}

// carryOut settles a delivery, and returns nil, or the event of a delivery for which this was impossible.
func (w *Worker) carryOut(d *delivery, p *plan) *Event {
	switch {
	case p.copied && p.event == EventRetried && w.cfg.OrderBy != nil:
		return w.wait(d, p)
	case p.copied && w.cfg.Order == AckThenPublish:
		return w.ackThenPublish(d, p)
	case p.copied:
		return w.publishThenAck(d, p)
	case !w.verify(d, p):
		return w.keep(d, errText(p.failure.Error))
	}
	return w.settleAs(d, p.verb)
}

// settleAs settles a delivery and its burst. The newest message of a burst is settled last, because it represents the others.
func (w *Worker) settleAs(d *delivery, v ack.Verb) *Event {
	var err error
	switch {
	case v == ack.NackRequeue:
		w.handBack(d)
		return nil
	case v == ack.Ack && w.cfg.Acked != nil:
		d.AckBurst()
		err = d.AckNow()
		if bad := guard.Call("function Acked", func() error { w.cfg.Acked(d.handlerMessage(), err); return nil }); bad != nil {
			w.log.Error("Acked failed", "message_id", d.id, "attempt", d.Attempt, "error", bad)
		}
	default:
		d.AckBurst()
		err = d.Settle(v)
	}
	if err != nil {
		return &Event{Kind: EventDropped, Err: err}
	}
	return nil
}

// publishThenAck publishes the copy, and acknowledges the original after the confirm. It tries only during the session
// of the delivery, because only that session can acknowledge the original. After the session has closed, the broker
// redelivers the original. If the copy is not confirmed before the acknowledgement timeout is near, or if the broker blocks
// or refuses it while the worker drains, publishThenAck requeues the original.
func (w *Worker) publishThenAck(d *delivery, p *plan) *Event {
	ctx := d.InTime()
	if confirmTimeout := w.client.cfg.ConfirmTimeout; d.Left() < confirmTimeout { // less time remains for settling than a confirm may take
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(d.Context(), confirmTimeout, consume.ErrOverdue)
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.consumer.Draining(), func() { w.endCopy(ctx, cancel) })()
	err := w.publishCopy(ctx, d, p, false)
	switch {
	case err == nil && !p.copied: // the copy was refused
		return w.settleAs(d, p.verb)
	case err == nil && !p.mature.IsZero():
		return nil // settle acknowledges the original later
	case err == nil:
		d.AckAll()
		return nil
	case d.Context().Err() != nil:
		w.logger(d, p).Warn("copy dropped", "error", err, "reason", context.Cause(d.Context()))
		return &Event{Kind: EventDropped, Err: err}
	}
	w.logger(d, p).Warn("message requeued", "error", err)
	w.handBack(d)
	return &Event{Kind: EventRequeued, Err: err}
}

// errDraining is the cause of the cancellation of a copy during a drain.
var errDraining = errors.New("reprise: the worker stops before the broker has confirmed the copy")

// endCopy cancels the publishing of a copy during a drain as soon as the broker blocks the connection. The end of an alarm
// may be far away.
func (w *Worker) endCopy(ctx context.Context, cancel context.CancelCauseFunc) {
	for !errors.Is(w.client.publishing.Trouble(), ErrBlocked) {
		if retry.Sleep(ctx, time.Second) != nil {
			return
		}
	}
	cancel(errDraining)
}

// ackThenPublish acknowledges the original, and publishes the copy after the broker has processed the ack. From then on,
// only this process has the message. The worker tries to publish the copy until the drain times out, also on new
// connections, but not if the broker may already have the copy.
func (w *Worker) ackThenPublish(d *delivery, p *plan) *Event {
	if d.Context().Err() != nil {
		w.logger(d, p).Warn("copy dropped", "error", consume.ErrLost, "reason", context.Cause(d.Context()))
		return &Event{Kind: EventDropped, Err: consume.ErrLost}
	}
	if err := d.AckNow(); err != nil {
		// If the broker did not receive the ack, publishing the copy would create a duplicate.
		w.logger(d, p).Error("message may be lost", "error", err, "reason", "the result of the acknowledgement is unknown")
		return &Event{Kind: EventLost, Err: err}
	}
	switch err := w.publishCopy(w.consumer.Settling(), d, p, true); {
	case errors.Is(err, ErrUnconfirmed):
		w.logger(d, p).Error("message may be lost", "error", err, "reason", "the result of publishing the copy is unknown")
		return &Event{Kind: EventLost, Err: err}
	case err != nil:
		w.logger(d, p).Error("message lost", "to", p.to(), "error", err)
		return &Event{Kind: EventLost, Err: err}
	}
	p.mature = time.Time{} // the original no longer exists
	d.AckBurst()
	return nil
}

// publishCopy tries to publish the copy of p until the broker confirms it, or until ctx is done. If sole is set, only this
// process has the message: publishCopy does not republish a copy that the broker may already have. If the broker refuses the
// copy permanently, publishCopy replaces p by the next plan. It returns nil if that plan has no copy.
func (w *Worker) publishCopy(ctx context.Context, d *delivery, p *plan, sole bool) error {
	retrier := retry.Retrier{Schedule: w.client.cfg.Reconnect}
	refused := false // permanently, or by a full queue for a while
	holding, release := false, func() {}
	defer func() { release() }()
	for first := time.Now(); ; {
		began := time.Now()
		err := w.client.publishCopy(ctx, p, func() {
			w.logger(d, p).Warn("confirm is late", "to", p.to(), "after", time.Since(began))
		})
		if err == nil {
			w.held.found(p.hop)
			return nil
		}
		w.client.declared.forget(p.hop)
		delay, pause := retrier.Failed(time.Since(began)), retry.Sleep
		if ctx.Err() == nil && (!sole || !errors.Is(err, ErrUnconfirmed)) {
			refusal := w.held.classify(p.hop, err)
			if refused = refusal >= publish.DestinationRefused; refused {
				w.logger(d, p).Error("copy refused", "to", p.to(), "error", err)
				w.observe(Event{Kind: EventCopyRefused, MessageID: d.id, Attempt: d.Attempt, Err: err})
				if next := w.planner.after(p, d, refusal, err); next.copied || !sole && w.verify(d, next) {
					if *p = *next; !p.copied {
						return nil
					}
					refused = false
					continue
				}
				delay = max(delay, refusedPause)
			}
			full := !refused && errors.Is(err, ErrNacked) && began.Sub(first) >= fullPause
			if refused || full && !holding {
				release()
				holding, release = true, w.hold(d, err)
			}
			if refused = refused || full; refused && !sole {
				pause = w.untilDrain
			}
			w.logger(d, p).Warn("copy failed", "to", p.to(), "error", err, retry.Next(delay))
			w.observe(Event{Kind: EventCopyFailed, MessageID: d.id, Attempt: d.Attempt, Delay: delay, Err: err})
			if pause(ctx, delay) == nil {
				continue
			}
			err = errors.Join(err, context.Cause(ctx))
		}
		if refused && !sole {
			w.held.remember(d)
		}
		return err
	}
}

// publishCopy returns nil after the broker has confirmed the copy, and sets p.mature.
func (c *Client) publishCopy(ctx context.Context, p *plan, late func()) error {
	if err := c.declared.ensure(ctx, p.hop); err != nil && !(p.way != retrying && publish.Classify(err) == publish.DestinationRefused) {
		return err // a failed queue that exists is usable, even if the user may not declare it
	}
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := amqpconn.CheckSize(p.hop.Exchange, p.hop.RoutingKey, &p.copy, conn.FrameSize(), 0); err != nil {
		return err
	}
	err = c.copies.Publish(ctx, publish.NewMessage(p.hop.Exchange, p.hop.RoutingKey, &p.copy), late)
	p.mature = c.mature(conn, p.hop)
	return err
}

// verify reports whether a plan without a copy can be carried out. If the worker rejects the delivery although its route
// parks by copies, the broker must move it to the failed queue. The marks are lost. Without at-least-once dead-lettering,
// verify only checks that the failed queue exists. The broker then moves the message without a confirm, and can lose it if a
// node fails at that moment. Otherwise the message would stay unsettled until somebody corrects the cause of the refusal, with
// a redelivery at each acknowledgement timeout.
func (w *Worker) verify(d *delivery, p *plan) bool {
	if p.reject == nil {
		return p.way != holding
	}
	ctx, cancel := context.WithTimeout(d.Context(), w.client.cfg.ConfirmTimeout)
	defer cancel()
	conn, err := w.client.consuming.Get(ctx)
	if err == nil {
		err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
			// The broker refuses the declaration if the arguments of the queue differ.
			if err := ch.DeclareQueue(ctx, p.reject.work, false); err != nil || p.reject.sure {
				return err
			}
			return ch.DeclareQueue(ctx, topology.Queue{Name: p.reject.to}, true)
		})
	}
	if err != nil {
		w.logger(d, p).Error("cannot be rejected", "error", err)
	}
	return err == nil
}

// keep holds a delivery that cannot be parked until it must be settled, and then requeues it.
func (w *Worker) keep(d *delivery, reason error) *Event {
	w.log.Error("cannot be parked", "message_id", d.id, "attempt", d.Attempt, "error", reason)
	defer w.hold(d, reason)()
	select {
	case <-d.InTime().Done():
	case <-w.consumer.Draining().Done():
	}
	if d.Context().Err() != nil {
		return &Event{Kind: EventDropped, Err: reason}
	}
	w.handBack(d)
	return &Event{Kind: EventRequeued, Err: reason}
}

// hold keeps a delivery that can be neither copied nor rejected. The result must be called when it is no longer held.
func (w *Worker) hold(d *delivery, reason error) (release func()) {
	d.Hold()
	w.held.add(1, reason)
	w.reportHolding()
	return func() {
		d.Release()
		w.held.add(-1, nil)
		w.reportHolding()
	}
}

// untilDrain sleeps for d. It returns an error if ctx is done or the worker drains.
func (w *Worker) untilDrain(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.consumer.Draining(), func() { cancel(errDraining) })()
	return retry.Sleep(ctx, d)
}

// conclude logs a plan that was carried out, and returns its event.
func (w *Worker) conclude(d *delivery, p *plan) Event {
	text := p.failure.Error
	switch p.event {
	case EventRequeued:
		w.log.Info("message requeued", "message_id", d.id, "attempt", d.Attempt, "error", logged(d.result.text))
		return Event{Kind: EventRequeued, Err: d.result.err}
	case EventRetried:
		if w.member != nil {
			w.announceRetry(d, p)
		}
		if w.log.Enabled(context.Background(), slog.LevelWarn) {
			w.logger(d, p).Warn("retry", "delay", p.hop.Delay, "error", logged(text))
		}
		return Event{Kind: EventRetried, Rejected: p.verb != ack.Ack, Delay: p.hop.Delay, Err: errText(text)}
	case EventParked:
		w.logger(d, p).Error("parked", "to", p.to(), "reason", p.failure.Reason, "error", logged(text))
		return Event{Kind: EventParked, Rejected: p.verb != ack.Ack, Err: errText(text)}
	}
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		exchange, key := d.History.OriginAt(d.At())
		w.log.Debug("processed", "message_id", d.id, "attempt", d.Attempt, "exchange", exchange, "routing_key", key, "took", d.result.took)
	}
	return Event{Kind: EventDone}
}

// logger returns the logger for the events of a copy. Exchange and routing key are those of the first publication.
func (w *Worker) logger(d *delivery, p *plan) *slog.Logger {
	id := d.id
	if p.copied {
		id = p.copy.MessageID
	}
	return w.log.With("message_id", id, "attempt", d.Attempt, "exchange", p.failure.Exchange, "routing_key", p.failure.RoutingKey)
}

// logged shortens the string of an error for the log. For a panic, the result is one line with the value and the location.
// The stack has many lines and is recorded on the message.
func logged(text string) string {
	what, rest, found := strings.Cut(text, "\n\n")
	if !found || !strings.HasPrefix(text, panicPrefix) {
		return text
	}
	stack, more, _ := strings.Cut(rest, "\n\n") // notes that the worker added to the error
	lines := strings.Split(stack, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		place, isFrame := strings.CutPrefix(lines[i+1], "\t")
		if !isFrame {
			break
		}
		if strings.HasPrefix(lines[i], "runtime.") { // frames of the runtime, for example for a nil pointer
			continue
		}
		place, _, _ = strings.Cut(place, " +0x")
		what += " (" + place + ")"
		if more = strings.TrimSpace(more); more != "" {
			what += "; " + more
		}
		return what
	}
	return text
}

// settled reports the final event of a delivery, and of the other messages of its burst, to the observer.
func (w *Worker) settled(d *delivery, e Event) {
	e.MessageID, e.Delivery, e.Attempt = d.id, d.handlerMessage(), d.Attempt
	w.observe(e)
	if e.Kind == EventDone || e.Kind == EventRetried || e.Kind == EventParked {
		e = Event{Kind: EventDebounced}
	}
	for _, b := range d.Burst {
		e.MessageID, e.Delivery, e.Attempt = b.MessageID, nil, b.Attempt // no handler received it
		w.observe(e)
	}
	if !d.Leased() { // otherwise a renewal may still read it
		d.Body = nil // frees the body, because a handler that retains its message also retains d
	}
}

// announceRetry reports a waiting message to operators. It does not report copies in held queues, because only their owner acts on
// them: see Client.ControlKey.
func (w *Worker) announceRetry(d *delivery, p *plan) {
	if p.hop.Delay < protocol.MinReportedRetry || w.cfg.OrderBy != nil {
		return
	}
	f := &p.failure
	w.member.Retrying(protocol.Retry{
		MessageID: d.id, Attempt: d.Attempt, Failed: f.Time, Due: time.Now().Add(p.hop.Delay), Wait: p.waits, Error: f.Error,
	})
}

// tally counts an event for the status of the worker.
func (w *Worker) tally(e *Event) {
	switch m := w.member; e.Kind {
	case EventHandled:
		m.Took(e.Took)
		if e.Err != nil {
			m.Failed.Add(1)
		}
	case EventDone:
		m.Succeeded.Add(1)
	case EventRetried:
		m.Retried.Add(1)
	case EventParked:
		m.Parked.Add(1)
	}
}

// observe calls the observer, if there is one.
func (w *Worker) observe(e Event) {
	if w.member != nil {
		w.tally(&e)
	}
	if o := w.client.cfg.Observer; o != nil {
		e.Queue, e.Worker, e.AsDelivered = w.cfg.Queue, w.number, w.cfg.AsDelivered
		o.Observe(e)
	}
}
