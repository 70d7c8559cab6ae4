package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// This file contains the steps in which a worker processes a delivery, from top to bottom:
//
//	handle ─► settle ─┬─► acknowledge
//	                  ├─► requeue
//	                  └─► replace ─┬─► reject: the broker moves it
//	                               └─► publish a copy, and ack

// delivery is a message that the worker received. It shares one allocation with the message for the handler.
type delivery struct {
	consume.Delivery
	message Message
	handled bool   // the handler received the message
	copyID  string // message ID of its copies
}

// owned returns the delivery that New allocated.
func owned(d *consume.Delivery) *delivery { return d.Owned.(*delivery) }

// handlerMessage returns the message that the handler received, or nil.
func (d *delivery) handlerMessage() *Message {
	if !d.handled {
		return nil
	}
	return &d.message
}

// result is the classified outcome of an attempt.
type result struct {
	verdict
	err     error
	text    string // error string that is recorded with the attempt
	reason  string // reason for parking, if the policy was not called
	headers topology.Table
	took    time.Duration
}

// handle calls the handler and settles the delivery according to the result. The delivery occupies one of the Concurrency
// slots only while the handler runs, not while its copy waits for the confirm.
func (w *Worker) handle(ctx context.Context, d *delivery) {
	if r, refused := w.refuse(d); refused {
		d.End(ErrNotAttempted, 0, nil)
		w.settle(ctx, d, r)
		return
	}
	began := time.Now()
	d.Begin(began)
	w.observe(Event{Kind: EventStarted, MessageID: d.MessageID, Attempt: d.Attempt, Age: age(d, began)})
	err := ErrHandlerExited // remains set if the handler calls runtime.Goexit
	// Deferred, because Goexit runs only deferred functions.
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		r := classified(err)
		r.took = time.Since(began)
		w.observe(Event{Kind: EventHandled, MessageID: d.MessageID, Message: d.handlerMessage(), Attempt: d.Attempt, Err: err, Took: r.took})
		if r.outcome != succeeded && ctx.Err() != nil {
			err = ErrNotAttempted
		}
		d.End(err, r.pause, r.err)
		w.settle(ctx, d, r)
	}()
	d.message, d.handled = w.message(d), true
	err = w.handler.Handle(ctx, &d.message)
}

func age(d *delivery, now time.Time) time.Duration {
	if d.Timestamp.IsZero() {
		return 0
	}
	return max(0, now.Sub(d.Timestamp))
}

// refuse returns the result of a delivery that the handler must not receive.
func (w *Worker) refuse(d *delivery) (r result, refused bool) {
	switch unreadable := amqpconn.Unreadable(d.Headers); {
	case unreadable != nil && !w.cfg.AsDelivered:
		w.log.Error("cannot be handled", "message_id", d.MessageID, "error", unreadable)
		r = result{text: unreadable.Error(), err: unreadable}
	case d.Err != nil:
		w.log.Error("cannot be handled", "message_id", d.MessageID, "error", d.Err)
		r = result{text: d.Err.Error(), err: d.Err}
	case w.refusals.recall(d, &r):
		return r, true
	case exhausted(d, w.cfg.Policy):
		r = result{reason: "attempts made", text: "not handled again: all its attempts were made, and the last one was never settled"}
	case d.Crashed():
		r = result{reason: "never settled", text: fmt.Sprintf("not handled again: %d deliveries ended before the message was settled (CrashLimit %d)", d.Crashes, d.CrashLimit())}
	default:
		return result{}, false
	}
	r.outcome, r.err = unretryable, cmp.Or[error](r.err, errText(r.text))
	return r, true
}

// exhausted reports whether a redelivered message has no attempt left. If the broker counts the attempts, an attempt
// that terminated the process also counts.
func exhausted(d *delivery, p Policy) bool {
	return d.Redelivered && d.History.RetriesLeft == topology.Undecided && d.History.Attempts >= p.maxAttempts()
}

// classified returns the result for a handler's error. The methods of the error are user code, which may panic on a typed
// nil.
func classified(err error) (r result) {
	r.err = err
	bad := guard.Call("error of the handler", func() error {
		if r.verdict = classify(err); r.outcome != succeeded {
			r.text = err.Error()
			r.headers = annotations(err)
		}
		return nil
	})
	if bad != nil {
		return result{verdict: verdict{outcome: failed}, err: bad, text: bad.Error()}
	}
	return r
}

// settle acknowledges, requeues or replaces a delivery, according to r. If the settlement fails, the original stays
// unacknowledged.
func (w *Worker) settle(ctx context.Context, d *delivery, r result) {
	switch {
	case r.outcome == succeeded:
		// Before the ack: if the process crashes in between, the redelivery repeats the report.
		w.report(ctx, d, topology.OutcomeSucceeded, "")
		w.acknowledge(d, r.took)
	case ctx.Err() != nil: // a failure after the drain timeout is not the fault of the message
		w.log.Info("message requeued", "message_id", d.MessageID, "attempt", d.Attempt, "error", logged(r.text))
		d.Requeue()
		w.settled(d, Event{Kind: EventRequeued, Err: r.err})
	default:
		failed := r // a separate variable, because it escapes to the heap and r does not
		if c := w.replacement(d, &failed); c != nil {
			if !c.parked {
				w.report(ctx, d, topology.OutcomeRetrying, c.failure.Error) // before the report of the next attempt
			}
			w.settled(d, w.replace(d, c))
		}
	}
}

// acknowledge acknowledges a delivery whose handler took this time, and calls WorkerConfig.Acked with the result.
func (w *Worker) acknowledge(d *delivery, took time.Duration) {
	d.AckBurst()
	var err error
	if w.cfg.Acked == nil {
		err = d.Settle(ack.Ack)
	} else {
		err = d.AckNow()
		if bad := guard.Call("function Acked", func() error { w.cfg.Acked(d.handlerMessage(), err); return nil }); bad != nil {
			w.log.Error("Acked failed", "message_id", d.MessageID, "attempt", d.Attempt, "error", bad)
		}
	}
	if err != nil {
		w.settled(d, Event{Kind: EventDropped, Err: err})
		return
	}
	if w.log.Enabled(context.Background(), slog.LevelDebug) {
		exchange, key := d.History.OriginAt(d.At)
		w.log.Debug("processed", "message_id", d.MessageID, "attempt", d.Attempt, "exchange", exchange, "routing_key", key, "took", took)
	}
	w.settled(d, Event{Kind: EventDone})
}

// replacement returns the replacement of a failed delivery, or nil if even parking is impossible.
func (w *Worker) replacement(d *delivery, r *result) *replacement {
	c := w.newReplacement(d, r)
	if d.Err == nil {
		err := guard.Call("strategy or policy", func() error { return w.choose(d, c, r) })
		if err == nil {
			return c
		}
		// The headers of the message fill the frame, or the strategy has failed.
		w.log.Error("cannot be settled", "message_id", d.MessageID, "attempt", d.Attempt, "error", err)
		c = w.newReplacement(d, r)
		c.failure.Error += "\n\nparked: cannot settle the message: " + err.Error()
	}
	// If the message stayed unacknowledged, it would occupy a slot of the prefetch until the session closes. Enough such
	// messages would stop all deliveries.
	err := w.parkUnmarked(d, c)
	if err == nil || w.parkByRejection(d, c, err) {
		return c
	}
	w.log.Error("cannot be parked", "message_id", d.MessageID, "attempt", d.Attempt, "error", err)
	w.settled(d, w.keep(d, err))
	return nil
}

// keep holds a delivery that cannot be parked until it must be settled, and then requeues it.
func (w *Worker) keep(d *delivery, reason error) Event {
	defer w.hold(d, reason)()
	select {
	case <-d.InTime().Done():
	case <-w.consumer.Draining().Done():
	}
	if d.Context().Err() != nil {
		return Event{Kind: EventDropped, Err: reason}
	}
	d.Requeue()
	return Event{Kind: EventRequeued, Err: reason}
}

// choose sets c to a retry if one is permitted and possible, and otherwise to a copy for the failed queue.
func (w *Worker) choose(d *delivery, c *replacement, r *result) error {
	var noWay error
	decision := w.decide(d, r, func(delay time.Duration) time.Duration {
		if c.hop, noWay = w.cfg.Strategy.Route.Wait(d.At, delay); noWay != nil {
			return delay
		}
		return c.hop.Delay
	})
	if decision.Retry {
		err := noWay
		if decision.Uncounted {
			c.failure.Uncounted, c.failure.Attempt = true, d.History.Attempts
		}
		if err == nil && c.hop.Way == topology.Copy {
			err = w.fill(d, c, c.result.headers, w.cfg.Strategy.Marks.Retry, amqpconn.RoomForStations(c.hop.Stations))
		}
		if err == nil {
			return nil
		}
		c.failure.Error += "\n\nparked: cannot retry the message: " + err.Error()
	}
	return w.park(d, c, cmp.Or(r.reason, decision.Reason))
}

// park sets c to a copy for the failed queue.
func (w *Worker) park(d *delivery, c *replacement, reason string) error {
	c.parked = true
	c.failure.Reason = reason
	c.failure.Uncounted, c.failure.Attempt = false, d.Attempt // a parked message shows all attempts and its last error
	c.hop = w.cfg.Strategy.Route.Failed(d.At)
	return w.fill(d, c, c.result.headers, w.cfg.Strategy.Marks.Park, amqpconn.RoomForDelivery)
}

// decide calls the policy. If the message specifies the number of remaining retries, this number replaces the MaxAttempts
// of the policy.
func (w *Worker) decide(d *delivery, r *result, wait func(time.Duration) time.Duration) Decision {
	p := w.cfg.Policy
	if left := d.History.RetriesLeft; left != topology.Undecided {
		p = p.withMaxAttempts(d.Attempt + left)
	}
	var since time.Duration
	if first := d.History.FirstFailed; !first.IsZero() {
		since = time.Since(first)
	}
	decision := p.decide(r.verdict, r.err, d.Attempt, since, wait)
	if decision.Uncounted && !w.isCopied(d) { // the broker counts the attempt
		v := r.verdict
		v.uncounted = false
		return p.counting().decide(v, r.err, d.Attempt, since, wait)
	}
	return decision
}

// parkUnmarked sets c to a copy without marks for the failed queue, as the last resort.
func (w *Worker) parkUnmarked(d *delivery, c *replacement) error {
	c.parked, c.unmarked = true, true
	return guard.Call("strategy", func() error {
		c.hop = w.cfg.Strategy.Route.Failed(d.At)
		unchanged := func(headers topology.Table, _ topology.Failure) topology.Table { return headers }
		return w.fill(d, c, nil, unchanged, 0) // the headers arrived in one frame, so they fit into one
	})
}

// replace settles a failed delivery. It publishes the copy and acknowledges the original, in the configured Order, or
// rejects the delivery.
func (w *Worker) replace(d *delivery, c *replacement) Event {
	var unsettled *Event // event of a failed replacement
	switch {
	case c.hop.Way == topology.Requeue:
		unsettled = reject(d, ack.RejectRequeue)
	case c.hop.Way == topology.DeadLetter:
		unsettled = reject(d, ack.DeadLetter)
	case w.cfg.Order == AckThenPublish:
		unsettled = w.ackThenPublish(d, c)
	default:
		unsettled = w.publishThenAck(d, c)
	}
	if unsettled != nil {
		return *unsettled
	}
	d.AckBurst() // the message that represents the burst is safe
	f := &c.failure
	if c.parked {
		w.copyLogger(d, c).Error("parked", "to", c.to(), "reason", f.Reason, "error", logged(f.Error))
		return Event{Kind: EventParked, Err: errText(f.Error)}
	}
	if w.member != nil {
		w.announceRetry(d, c)
	}
	if w.log.Enabled(context.Background(), slog.LevelWarn) {
		w.copyLogger(d, c).Warn("retry", "delay", c.hop.Delay, "error", logged(f.Error))
	}
	return Event{Kind: EventRetried, Delay: c.hop.Delay, Err: errText(f.Error)}
}

// reject makes the broker requeue or dead-letter the delivery.
func reject(d *delivery, how ack.Verb) *Event {
	if err := d.Settle(how); err != nil {
		return &Event{Kind: EventDropped, Err: err}
	}
	return nil
}

// publishThenAck publishes the copy, and acknowledges the original after the confirm. It tries only during the session
// of the delivery, because only that session can acknowledge the original. After the session has closed, the broker
// redelivers the original. If the copy is not confirmed before the acknowledgement timeout is near, or if the broker blocks
// or refuses it while the worker drains, publishThenAck requeues the original.
func (w *Worker) publishThenAck(d *delivery, c *replacement) *Event {
	ctx := d.InTime()
	if confirmTimeout := w.client.cfg.ConfirmTimeout; d.Left() < confirmTimeout { // less time remains for settling than a confirm may take
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(d.Context(), confirmTimeout, consume.ErrOverdue)
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.consumer.Draining(), func() { w.endCopy(ctx, cancel) })()
	err := w.publishCopy(ctx, d, c, false)
	switch {
	case err == nil && c.hop.Way == topology.DeadLetter:
		return reject(d, ack.DeadLetter)
	case err == nil:
		_ = d.Settle(ack.Ack)
		return nil
	case d.Context().Err() != nil:
		w.copyLogger(d, c).Warn("copy dropped", "error", err, "reason", context.Cause(d.Context()))
		return &Event{Kind: EventDropped, Err: err}
	}
	w.copyLogger(d, c).Warn("message requeued", "error", err)
	d.Requeue()
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
func (w *Worker) ackThenPublish(d *delivery, c *replacement) *Event {
	if d.Context().Err() != nil {
		w.copyLogger(d, c).Warn("copy dropped", "error", consume.ErrLost, "reason", context.Cause(d.Context()))
		return &Event{Kind: EventDropped, Err: consume.ErrLost}
	}
	if err := d.AckNow(); err != nil {
		// If the broker did not receive the ack, publishing the copy would create a duplicate.
		w.copyLogger(d, c).Error("message may be lost", "error", err, "reason", "the result of the acknowledgement is unknown")
		return &Event{Kind: EventLost, Err: err}
	}
	switch err := w.publishCopy(w.consumer.Settling(), d, c, true); {
	case errors.Is(err, ErrUnconfirmed):
		w.copyLogger(d, c).Error("message may be lost", "error", err, "reason", "the result of publishing the copy is unknown")
		return &Event{Kind: EventLost, Err: err}
	case err != nil:
		w.copyLogger(d, c).Error("message lost", "to", c.to(), "error", err)
		return &Event{Kind: EventLost, Err: err}
	}
	return nil
}

// publishCopy tries to publish a copy until the broker confirms it, or until ctx is done. If sole is set, only this process
// has the message: publishCopy does not republish a copy that the broker may already have. If the broker refuses the copy
// permanently, publishCopy changes c to the next way to park the message. It returns nil if this way is a rejection.
func (w *Worker) publishCopy(ctx context.Context, d *delivery, c *replacement, sole bool) error {
	retrier := retry.Retrier{Schedule: w.client.cfg.Reconnect}
	var previous publish.Refusal
	release := func() {}
	defer func() { release() }()
	fail := func(err error) error {
		if previous >= publish.DestinationRefused && !sole {
			w.refusals.remember(d, c.result)
		}
		return err
	}
	for {
		began := time.Now()
		err := w.client.publishCopy(ctx, c, func() {
			w.copyLogger(d, c).Warn("confirm is late", "to", c.to(), "after", time.Since(began))
		})
		if err == nil {
			w.refusals.found(c.hop)
			return nil
		}
		w.client.declared.forget(c.hop)
		if ctx.Err() != nil || sole && errors.Is(err, ErrUnconfirmed) {
			return fail(err)
		}
		refusal := publish.Classify(err)
		if refusal == publish.Unrouted && w.refusals.missing(c.hop, time.Now()) >= unroutedPause {
			refusal = publish.DestinationRefused // neither declarations nor other programs have helped
		}
		previous = refusal
		delay, pause := retrier.Failed(time.Since(began)), retry.Sleep
		if refusal >= publish.DestinationRefused {
			w.noteRefusal(d, c, err)
			if w.divert(d, c, refusal, err, sole) {
				if c.hop.Way == topology.DeadLetter {
					return nil
				}
				previous = publish.Transient
				continue
			}
			release()
			release = w.hold(d, err)
			delay = max(delay, refusedPause)
			if !sole {
				pause = w.untilDrain
			}
		}
		w.copyLogger(d, c).Warn("copy failed", "to", c.to(), "error", err, retry.Next(delay))
		w.observe(Event{Kind: EventCopyFailed, MessageID: d.MessageID, Attempt: d.Attempt, Delay: delay, Err: err})
		if pause(ctx, delay) != nil {
			return fail(errors.Join(err, context.Cause(ctx)))
		}
	}
}

// publishCopy returns nil after the broker has confirmed the copy.
func (c *Client) publishCopy(ctx context.Context, r *replacement, late func()) error {
	if err := c.declared.ensure(ctx, r.hop); err != nil && !(r.parked && publish.Classify(err) == publish.DestinationRefused) {
		return err // a failed queue that exists is usable, even if the user may not declare it
	}
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := amqpconn.CheckSize(r.hop.Exchange, r.hop.RoutingKey, &r.msg, conn.FrameSize(), 0); err != nil {
		return err
	}
	return c.copies.Publish(ctx, publish.NewMessage(r.hop.Exchange, r.hop.RoutingKey, &r.msg), late)
}

// copyLogger returns the logger for the events of a copy. Exchange and routing key are those of the first publication.
func (w *Worker) copyLogger(d *delivery, c *replacement) *slog.Logger {
	return w.log.With("message_id", c.messageID(d), "attempt", d.Attempt, "exchange", c.failure.Exchange, "routing_key", c.failure.RoutingKey)
}

// settled reports the final event of a delivery, and of the other messages of its burst, to the observer.
func (w *Worker) settled(d *delivery, e Event) {
	e.MessageID, e.Message, e.Attempt = d.MessageID, d.handlerMessage(), d.Attempt
	w.observe(e)
	if e.Kind == EventDone || e.Kind == EventRetried || e.Kind == EventParked {
		e = Event{Kind: EventDebounced}
	}
	for _, b := range d.Burst {
		e.MessageID, e.Message, e.Attempt = b.MessageID, nil, b.Attempt // no handler received it
		w.observe(e)
	}
	d.Body = nil // frees the body, because a handler that retains its message also retains d
}

// errText is an error that contains only its string.
type errText string

func (e errText) Error() string { return string(e) }
