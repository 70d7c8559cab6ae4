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

// RetryAfter returns an error that makes a handler's message come back after d,
// whatever its Policy's Backoff says: for a downstream that names the time
// itself. It counts as an attempt, and when no attempt is left the message is
// parked. A negative d counts as 0. The default strategy's wait queues hold a
// message for at most topology.MaxDelay (49 days): after a longer d the message
// comes back then, and the handler can ask again. Routes with a delay of their
// own (topology.WaitQueue, GrowingTTL, Requeuing, DelayedRetry, DeadLettering) keep to that.
//
// The result wraps err, which may be nil, and works from inside any chain of
// wrapped errors. Where several are wrapped in one another, the outermost counts.
func RetryAfter(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Err: err}
}

// PauseFor is RetryAfter for a downstream that wants to be left alone altogether: the
// worker also consumes nothing for d. Handlers that are running go on; messages that
// were not begun go back to the queue. Other workers, in this process or elsewhere,
// are not told.
func PauseFor(d time.Duration, err error) error {
	return &RetryAfterError{Delay: max(0, d), Pause: true, Err: err}
}

// Park returns an error that parks a handler's message now, without further
// attempts: for a message that no retry will make succeed. It wraps err, which
// may be nil.
func Park(err error) error { return &ParkError{Err: err} }

// Annotate returns err with headers that are written on the copy of the message, be it
// retried or parked, in place of those of the same name: how far an attempt has come,
// for the next one to go on from there, or whatever a person should see. The outcome
// is err's; a nil err stays nil, since there is no copy.
//
// Values are those of Message.Headers. Names that belong to Reprise
// (x-reprise-…; not those of its middleware), to the strategy or to RabbitMQ are left out, and so are all of
// them where one cannot be encoded or they do not fit into the header frame: the
// error recorded with the attempt then says so. Where several are wrapped in one
// another, the outermost wins. A route that publishes no copy
// (topology.Requeuing, DelayedRetry, DeadLettering) cannot carry them.
func Annotate(err error, headers map[string]any) error {
	if err == nil || len(headers) == 0 {
		return err
	}
	return &AnnotatedError{Err: err, Headers: headers}
}

// RetryAfterError is the outcome made by RetryAfter and PauseFor.
type RetryAfterError struct {
	Delay time.Duration
	Pause bool // the worker consumes nothing meanwhile
	Err   error
}

// Error returns the text of the wrapped error.
func (e *RetryAfterError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("retry after %s", e.Delay)
	}
	return e.Err.Error()
}

func (e *RetryAfterError) Unwrap() error { return e.Err }

// AnnotatedError is the error made by Annotate.
type AnnotatedError struct {
	Err     error // not nil
	Headers map[string]any
}

// Error returns the text of the wrapped error.
func (e *AnnotatedError) Error() string { return e.Err.Error() }

func (e *AnnotatedError) Unwrap() error { return e.Err }

// ParkError is the outcome made by Park.
type ParkError struct {
	Err error
}

// Error returns the text of the wrapped error.
func (e *ParkError) Error() string {
	if e.Err == nil {
		return "parked by the handler"
	}
	return e.Err.Error()
}

func (e *ParkError) Unwrap() error { return e.Err }

// PanicError is the error of an attempt whose handler panicked. It is treated
// as any other error: the message is retried.
type PanicError struct {
	Value any    // what the handler panicked with
	Stack []byte // of the goroutine, as debug.Stack formats it
}

// Error returns the value, and the stack from where it panicked: both are recorded
// on the message. What is logged has the value and the place, and not the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s%v\n\n%s", panicPrefix, e.Value, e.origin())
}

const panicPrefix = "panic: "

// origin is the stack without what stands above the panic: how it was recovered,
// which is the same for all of them.
func (e *PanicError) origin() []byte {
	_, below, found := bytes.Cut(e.Stack, []byte("\npanic("))
	if !found {
		return e.Stack
	}
	_, below, _ = bytes.Cut(below, []byte("\n\t")) // its arguments
	_, below, _ = bytes.Cut(below, []byte("\n"))   // its file
	return below
}

// Unwrap returns the value if it is an error, so that a handler may panic with
// an outcome.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrHandlerExited is the error of an attempt whose handler left through
// runtime.Goexit (which testing.T.FailNow calls) and so returned nothing.
var ErrHandlerExited = errors.New("reprise: the handler ended its goroutine without returning (runtime.Goexit)")

// outcome is what becomes of a delivery after an attempt.
type outcome int

const (
	succeeded outcome = iota // ack
	failed                   // retry after the policy's delay, or park
	later                    // retry after the handler's delay, or park
	hopeless                 // park
)

// verdict is what a handler's error says.
type verdict struct {
	outcome outcome
	delay   time.Duration // later: what the handler asked for
	pause   time.Duration // how long to consume nothing
}

// classify reads the verdict off a handler's error.
func classify(err error) verdict {
	if err == nil {
		return verdict{outcome: succeeded}
	}
	// Walked by hand, since the outermost outcome of the chain counts, of
	// whichever type.
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch x := e.(type) {
		case *RetryAfterError:
			v := verdict{outcome: later, delay: max(0, x.Delay)}
			if x.Pause {
				v.pause = v.delay
			}
			return v
		case *ParkError:
			return verdict{outcome: hopeless}
		case interface{ Unwrap() []error }:
			return classifyJoined(x.Unwrap())
		}
	}
	return verdict{outcome: failed}
}

// classifyJoined looks through errors that are equals: one that says Park
// speaks for all, since no retry helps it; else the longest delay, and the longest
// pause.
func classifyJoined(errs []error) verdict {
	all := verdict{outcome: failed}
	for _, err := range errs {
		v := classify(err)
		if v.outcome == hopeless {
			return v
		}
		if v.outcome == later {
			all.outcome, all.delay = later, max(all.delay, v.delay)
			all.pause = max(all.pause, v.pause)
		}
	}
	return all
}

// annotations collects what Annotate put on err, the outermost winning.
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

// logged is an error's text as it is logged: of a panic, what it was and where, in one
// line. The stack is many, and is on the message for whoever looks into it.
func logged(text string) string {
	what, rest, found := strings.Cut(text, "\n\n")
	if !found || !strings.HasPrefix(text, panicPrefix) {
		return text
	}
	stack, more, _ := strings.Cut(rest, "\n\n") // what was found out after it
	lines := strings.Split(stack, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		place, isFrame := strings.CutPrefix(lines[i+1], "\t")
		if !isFrame {
			break
		}
		if strings.HasPrefix(lines[i], "runtime.") { // what a nil pointer goes through
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

// reportTimeout is how long a worker waits for the confirm of a report. Then it settles the message without the report: an unknown
// outcome is better than a message that is handled twice.
const reportTimeout = 5 * time.Second

// report reports the result of an attempt for each message of a burst. ctx is the context of handlers: it ends before the worker
// closes the session, so that the delivery can still be settled.
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

// reportOne publishes the result to the queue that a replayed message names, and waits for the confirm.
func (w *Worker) reportOne(ctx context.Context, d *consume.Delivery, result, text string) {
	request, asked := topology.ReadOutcomeRequest(d.At.Headers)
	if !asked || w.cfg.AsDelivered || !request.Asks(w.cfg.Queue, d.MessageID) {
		return
	}
	if d.Context().Err() != nil {
		return // the broker delivers the message again
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

// publishReport returns nil when the broker has the report. It does not wait where no confirm is expected.
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
	// reportPause is how long a client sends no reports to a queue that did not confirm a report. Until the reportTimeout, each
	// such report keeps a place of the prefetch.
	reportPause = time.Minute

	// maxReportPauses bounds the queues that are remembered. Their names come with messages.
	maxReportPauses = 100
)

var errReportsPaused = fmt.Errorf("reprise: not sent: the queue did not confirm a report within %s, and gets none for %s", reportTimeout, reportPause)

// reports are those of a client.
type reports struct {
	mu     sync.Mutex
	paused *bounded.Map[string, time.Time] // by queue: until when
}

func newReports() *reports { return &reports{paused: bounded.New[string, time.Time](maxReportPauses)} }

// admit reports whether a report may be sent to a queue. After a pause, the first report tries the queue alone.
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

// note notes the result of a report that was sent.
func (r *reports) note(to string, unconfirmed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unconfirmed {
		r.paused.Put(to, time.Now().Add(reportPause))
	} else {
		r.paused.Drop(to)
	}
}

// publishOwn publishes a message of this package. It returns nil when the broker has it.
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
