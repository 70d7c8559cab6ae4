package reprise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// RetryAfter returns an error that makes the worker retry the message after d, regardless of the Backoff of its Policy.
// Use it if a downstream service specifies the delay. The attempt counts. If no attempt is left, the message is parked.
// A negative d counts as 0. The wait queues of the default strategy delay a message for at most topology.MaxDelay (49
// days). If d is longer, the message is retried after MaxDelay, and the handler can return RetryAfter again. Routes
// that determine the delay themselves (topology.WaitQueue, GrowingTTL, Requeuing, DelayedRetry, DeadLettering) ignore
// d.
//
// The result wraps err, which may be nil. It also takes effect inside a chain of wrapped errors. If a chain has several
// outcomes, the outermost applies.
func RetryAfter(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Err: err}
}

// Snooze returns an error that has the effect of RetryAfter, but the attempt does not count: the number of attempts, the
// recorded errors and the time of the first failure do not change. Use it if the message cannot be processed yet, for
// example before a shop opens. Nothing limits the number of such attempts. With a route on which the broker counts the
// attempts (topology.Requeuing, DelayedRetry, DeadLettering and the routes of message TTLs), Snooze equals RetryAfter.
func Snooze(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Uncounted: true, Err: err}
}

// PauseFor returns an error that has the effect of RetryAfter, and also makes the worker stop consuming for d. Use it if a
// downstream service must not receive any calls. Running handlers continue. The worker requeues messages that it has not
// started. Other workers, in this process or elsewhere, are not affected.
func PauseFor(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Pause: true, Err: err}
}

// Park returns an error that makes the worker park the message immediately, without further attempts. Use it if a retry
// cannot succeed. The result wraps err, which may be nil.
func Park(err error) error { return &ParkError{Err: err} }

// Annotate returns err together with headers for the copy of the message that is retried or parked. A header replaces an
// existing header of the same name. Use it to record the progress for the next attempt, or information for the operator.
// The outcome of err does not change. If err is nil, Annotate returns nil, because there is no copy.
//
// Values have the same types as in Message.Headers. The worker omits headers whose names belong to Reprise
// (x-reprise-…, except for the headers of its middleware), to the strategy or to RabbitMQ. If a header cannot be
// encoded, or the headers do not fit into the header frame, the worker omits all headers of Annotate and adds a note to
// the recorded error of the attempt. If several calls of Annotate set the same header, the outermost applies. A retry
// without a copy (with topology.Requeuing, DelayedRetry or DeadLettering) ignores the headers.
func Annotate(err error, headers map[string]any) error {
	if err == nil || len(headers) == 0 {
		return err
	}
	return &AnnotatedError{Err: err, Headers: headers}
}

// RetryAfterError is the outcome that RetryAfter, Snooze and PauseFor return.
type RetryAfterError struct {
	Delay time.Duration
	Pause bool // the worker does not consume during the Delay
	Err   error

	Uncounted bool // the attempt does not count
}

// Error returns the string of the wrapped error, or a string with the Delay if Err is nil.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return e.Err.Error()
}

func (e *RetryAfterError) Unwrap() error { return e.Err }

// AnnotatedError is the error that Annotate returns.
type AnnotatedError struct {
	Err     error // not nil
	Headers map[string]any
}

// Error returns the string of the wrapped error.
func (e *AnnotatedError) Error() string { return e.Err.Error() }

func (e *AnnotatedError) Unwrap() error { return e.Err }

// ParkError is the outcome that Park returns.
type ParkError struct {
	Err error
}

// Error returns the string of the wrapped error, or a default string if Err is nil.
func (e *ParkError) Error() string {
	if e.Err == nil {
		return "parked by the handler"
	}
	return e.Err.Error()
}

func (e *ParkError) Unwrap() error { return e.Err }

// PanicError is the error of an attempt whose handler panicked. The worker treats it like any other error.
type PanicError struct {
	Value any    // value of the panic
	Stack []byte // stack of the goroutine, in the format of debug.Stack
}

// Error returns the value, and the stack from the origin of the panic. The worker records both on the message. The log
// contains the value and the location, but not the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s%v\n\n%s", panicPrefix, e.Value, e.origin())
}

const panicPrefix = "panic: "

// origin returns the stack without the frames above the panic. These frames belong to the recovery and are always the same.
func (e *PanicError) origin() []byte {
	_, below, found := bytes.Cut(e.Stack, []byte("\npanic("))
	if !found {
		return e.Stack
	}
	_, below, _ = bytes.Cut(below, []byte("\n\t")) // arguments of panic
	_, below, _ = bytes.Cut(below, []byte("\n"))   // file of panic
	return below
}

// Unwrap returns the value if it is an error, so that a handler can panic with an outcome.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrHandlerExited is the error of an attempt whose handler did not return, because it called runtime.Goexit (for example
// through testing.T.FailNow).
var ErrHandlerExited = errors.New("reprise: handler exited its goroutine without returning (runtime.Goexit)")

// outcome determines how the worker settles a delivery after an attempt.
type outcome int

const (
	succeeded   outcome = iota // ack
	failed                     // retry after the policy's delay, or park
	postponed                  // retry after the handler's delay, or park
	unretryable                // park
)

// verdict is the classification of a handler's error.
type verdict struct {
	outcome outcome
	delay   time.Duration // for postponed: the delay that the handler requested
	pause   time.Duration // duration of the worker's pause

	uncounted bool // for postponed: the attempt does not count
}

// classify returns the verdict for a handler's error.
func classify(err error) verdict {
	if err == nil {
		return verdict{outcome: succeeded}
	}
	// errors.As finds the outermost error of one type, but the outermost outcome of any type applies.
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *RetryAfterError:
			v := verdict{outcome: postponed, delay: max(0, x.Delay), uncounted: x.Uncounted}
			if x.Pause {
				v.pause = v.delay
			}
			return v
		case *ParkError:
			return verdict{outcome: unretryable}
		case interface{ Unwrap() []error }:
			return classifyJoined(x.Unwrap())
		}
	}
	return verdict{outcome: failed}
}

// classifyJoined combines the verdicts of joined errors. The attempt counts unless all errors are from Snooze. Park takes precedence, because a retry cannot succeed. Otherwise
// the longest delay and the longest pause apply.
func classifyJoined(errs []error) verdict {
	all := verdict{outcome: failed, uncounted: true}
	for _, err := range errs {
		v := classify(err)
		if v.outcome == unretryable {
			return v
		}
		if v.outcome == postponed {
			all.outcome, all.delay = postponed, max(all.delay, v.delay)
			all.pause = max(all.pause, v.pause)
		}
		all.uncounted = all.uncounted && v.uncounted
	}
	all.uncounted = all.uncounted && all.outcome == postponed
	return all
}

// annotations returns the headers that Annotate added to err. If several calls of Annotate set the same header, the
// outermost applies.
func annotations(err error) topology.Table {
	var all topology.Table
	add := func(headers map[string]any) {
		for k, v := range headers {
			if _, found := all[k]; !found {
				if all == nil {
					all = topology.Table{}
				}
				all[k] = v
			}
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *AnnotatedError:
			add(x.Headers)
		case interface{ Unwrap() []error }:
			for _, branch := range x.Unwrap() {
				add(annotations(branch))
			}
			return all
		}
	}
	return all
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

// reportTimeout is the maximum time that a worker waits for the confirm of a report. After that time, the worker settles the
// message without the report, because an unknown outcome is better than a message that is handled twice.
const reportTimeout = 5 * time.Second

// report sends the result of an attempt, for d and for the other messages of its burst. ctx is the context of the
// handlers. It is canceled before the worker closes the session, so a slow report does not prevent the settlement.
func (w *Worker) report(ctx context.Context, d *delivery, result, text string) {
	if len(d.Burst) > 0 {
		var burst sync.WaitGroup
		defer burst.Wait()
		for _, other := range d.Burst {
			burst.Go(func() { w.reportOne(ctx, other, result, text) })
		}
	}
	w.reportOne(ctx, &d.Delivery, result, text)
}

// reportOne publishes the result to the queue that the outcome request of a replayed message names, and waits for the
// confirm.
func (w *Worker) reportOne(ctx context.Context, d *consume.Delivery, result, text string) {
	request, asked := topology.ReadOutcomeRequest(d.At.Headers)
	if !asked || w.cfg.AsDelivered || !request.Asks(w.cfg.Queue, d.MessageID) {
		return
	}
	if d.Context().Err() != nil {
		return // the broker redelivers the message
	}
	ctx, cancel := context.WithTimeout(ctx, min(reportTimeout, d.Left()))
	defer cancel()
	err := w.client.publishReport(ctx, request.To, topology.Outcome{
		Replay: request.Replay, Key: request.Key, Queue: w.cfg.Queue, Attempt: d.Attempt, Result: result, Error: text,
	})
	if err == nil {
		return
	}
	w.log.Warn("outcome not reported", "message_id", d.MessageID, "attempt", d.Attempt, "result", result, "to", request.To, "error", err)
	w.observe(Event{Kind: EventUnreported, MessageID: d.MessageID, Attempt: d.Attempt, Err: err})
}

// publishReport returns nil after the broker has confirmed the report. It does not publish if the broker blocks
// publishers, or if the queue did not confirm an earlier report.
func (c *Client) publishReport(ctx context.Context, to string, o topology.Outcome) error {
	if ctx.Err() != nil {
		return publish.NotSent(ctx)
	}
	if err := c.publishing.Trouble(); errors.Is(err, ErrBlocked) {
		return err
	}
	headers, err := amqpconn.EncodeTable(o.Table())
	if err != nil {
		return err
	}
	if !c.reports.admit(to) {
		return errReportsPaused
	}
	err = c.publishOwn(ctx, "", to, &amqpconn.Message{Headers: headers, Timestamp: time.Now()})
	c.reports.note(to, errors.Is(err, ErrUnconfirmed) && errors.Is(ctx.Err(), context.DeadlineExceeded))
	return err
}

const (
	// reportPause is the time for which a client does not send reports to a queue that did not confirm a report. A
	// report without a confirm delays the settlement of its message by up to the reportTimeout, during which the
	// message occupies a slot of the prefetch.
	reportPause = time.Minute

	// maxReportPauses limits the number of remembered queues, because their names come from messages.
	maxReportPauses = 100
)

var errReportsPaused = fmt.Errorf("reprise: cannot send report: the queue did not confirm an earlier report within %s (reports pause for %s)", reportTimeout, reportPause)

// reports remembers the queues that did not confirm a report.
type reports struct {
	mu     sync.Mutex
	paused *bounded.Map[string, time.Time] // end of the pause, by queue
}

func newReports() *reports { return &reports{paused: bounded.New[string, time.Time](maxReportPauses)} }

// admit reports whether a report may be sent to a queue. After a pause, it admits only one report, which tests the queue.
func (r *reports) admit(to string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, paused := r.paused.Get(to)
	if !paused {
		return true
	}
	if time.Now().Before(until) {
		return false
	}
	r.paused.Put(to, time.Now().Add(reportPause))
	return true
}

// note records whether a queue left a report unconfirmed.
func (r *reports) note(to string, unconfirmed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unconfirmed {
		r.paused.Put(to, time.Now().Add(reportPause))
	} else {
		r.paused.Drop(to)
	}
}

// publishOwn publishes a message that the client itself creates, such as a report or a command. It returns nil after
// the broker has confirmed the message.
func (c *Client) publishOwn(ctx context.Context, exchange, key string, msg *amqpconn.Message) error {
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := amqpconn.CheckSize(exchange, key, msg, conn.FrameSize(), 0); err != nil {
		return err
	}
	return c.copies.Publish(ctx, publish.NewMessage(exchange, key, msg), nil)
}
