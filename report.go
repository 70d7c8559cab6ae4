package reprise

import (
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

// report sends the result of an attempt to the archive that replayed the message, and those of the other messages of its
// burst, before the plan is carried out. If the process crashes in between, the redelivery repeats the report. A parked
// message needs no report, because the archive receives it. ctx is the context of the handlers. It is canceled before the
// worker closes the session, so a slow report does not prevent the settlement.
func (w *Worker) report(ctx context.Context, d *delivery, p *plan) {
	var result string
	switch p.event {
	case EventDone:
		result = protocol.OutcomeSucceeded
	case EventRetried:
		result = protocol.OutcomeRetrying
	default:
		return
	}
	if len(d.Burst) > 0 {
		var burst sync.WaitGroup
		defer burst.Wait()
		for _, other := range d.Burst {
			burst.Go(func() { w.reportOne(ctx, other, result, p.failure.Error) })
		}
	}
	w.reportOne(ctx, &d.Delivery, result, p.failure.Error)
}

// reportOne publishes the result to the queue that the outcome request of a replayed message names, and waits for the
// confirm.
func (w *Worker) reportOne(ctx context.Context, d *consume.Delivery, result, text string) {
	request, asked := protocol.ReadOutcomeRequest(d.At.Headers)
	if !asked || w.cfg.AsDelivered || !request.Asks(w.cfg.Queue, d.MessageID) {
		return
	}
	if d.Context().Err() != nil {
		return // the broker redelivers the message
	}
	ctx, cancel := context.WithTimeout(ctx, min(reportTimeout, d.Left()))
	defer cancel()
	err := w.client.publishReport(ctx, request.To, protocol.Outcome{
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
