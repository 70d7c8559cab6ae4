package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/publish"
)

// reportTimeout is the maximum time that a worker waits for the confirm of a report. After that time, the worker settles the
// message without the report, because an unknown outcome is better than a message that is handled twice.
const reportTimeout = 5 * time.Second

// report is the result of an attempt for the archive that replayed the message.
type report struct {
	protocol.Outcome
	to string            // queue
	of *consume.Delivery // its message
}

// reports returns the reports that the messages of a delivery request. A parked message needs no report, because the archive
// receives it.
func (pl *planner) reports(d *delivery, p *plan) []report {
	result := protocol.OutcomeSucceeded
	switch p.event {
	case EventDone:
	case EventRetried:
		result = protocol.OutcomeRetrying
	default:
		return nil
	}
	all := pl.addReport(nil, &d.Delivery, result, p.failure.Error)
	for _, other := range d.Burst {
		all = pl.addReport(all, other, result, p.failure.Error)
	}
	return all
}

// addReport adds the report of a message, if it requests one.
func (pl *planner) addReport(all []report, d *consume.Delivery, result, text string) []report {
	queue := cmp.Or(d.Source, pl.cfg.Queue)
	request, asked := protocol.ReadOutcomeRequest(d.Marked)
	if !asked || pl.cfg.AsDelivered || !request.Asks(queue, d.MessageID) {
		return all
	}
	return append(all, report{to: request.To, of: d, Outcome: protocol.Outcome{
		Replay: request.Replay, Key: request.Key, Queue: queue, Attempt: d.Attempt, Result: result, Error: text,
	}})
}

// report sends the reports of a plan before the plan is carried out. If the process crashes in between, the redelivery
// repeats them. ctx is the context of the handlers. It is canceled before the worker closes the session, so a slow report does
// not prevent the settlement.
func (w *Worker) report(ctx context.Context, reports []report) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for _, r := range reports {
		sending.Go(func() { w.reportOne(ctx, r) })
	}
}

// reportOne sends a report and waits for the confirm.
func (w *Worker) reportOne(ctx context.Context, r report) {
	if r.of.Context().Err() != nil {
		return // the broker redelivers the message
	}
	ctx, cancel := context.WithTimeout(ctx, min(reportTimeout, r.of.Left()))
	defer cancel()
	if err := w.client.publishReport(ctx, r.to, r.Outcome); err != nil {
		w.log.Warn("outcome not reported", "message_id", r.of.MessageID, "attempt", r.Attempt, "result", r.Result, "to", r.to, "error", err)
		w.observe(Event{Kind: EventUnreported, MessageID: r.of.MessageID, Attempt: r.Attempt, Err: err})
	}
}

// publishReport returns nil after the broker has confirmed the report. It does not publish if the broker blocks
// publishers, or if the queue did not confirm an earlier report.
func (c *Client) publishReport(ctx context.Context, to string, o protocol.Outcome) error {
	if ctx.Err() != nil {
		return publish.NotSent(ctx)
	}
	if err := c.publishing.Trouble(); errors.Is(err, ErrBlocked) {
		return err
	}
	if !c.reports.admit(to) {
		return errReportsPaused
	}
	headers, err := amqpconn.EncodeTable(o.Table())
	if err != nil {
		return err
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
