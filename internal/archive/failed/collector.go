package failed

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// collector declares a queue to which reports are published, and records the reports in the archive.
type collector[T any] struct {
	client   *reprise.Client
	archive  *Archive
	log      *slog.Logger
	queue    string
	topology topology.Topology // declaration of the queue
	waits    string            // log message for reports that cannot be recorded yet

	declaring chan struct{} // has one element while a caller declares the queue

	read func(*reprise.Delivery) (T, bool)
	note func(context.Context, []T) error // in one transaction
}

// newOutcomes returns a collector for outcome reports.
func newOutcomes(c *reprise.Client, a *Archive, log *slog.Logger) *collector[protocol.Outcome] {
	return &collector[protocol.Outcome]{
		client: c, archive: a, log: log, queue: a.outcomeQueue(), topology: a.outcomeTopology(), waits: "outcomes wait",
		declaring: make(chan struct{}, 1),
		read:      func(m *reprise.Delivery) (protocol.Outcome, bool) { return protocol.ReadOutcome(m.Headers) },
		note:      a.noteOutcomes,
	}
}

// maxReports is the maximum number of unacked reports, and the maximum number of reports in one transaction.
const maxReports = 64

// declare declares the queue, one caller at a time: RabbitMQ 3.10 closes the connection, with all its consumers, if two callers
// create the same quorum queue.
func (c *collector[T]) declare(ctx context.Context) (err error) {
	defer annotate(&err, "cannot declare queue %s", c.queue)
	select {
	case c.declaring <- struct{}{}:
		defer func() { <-c.declaring }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.client.Declare(ctx, c.topology)
}

// collect records reports until ctx is done or the client is closed. Several processes may collect reports for one
// archive.
func (c *collector[T]) collect(ctx context.Context) {
	for failures := 1; ; failures++ {
		err := c.consume(ctx)
		if ctx.Err() != nil || errors.Is(err, reprise.ErrClosed) {
			return
		}
		if err != nil && failures == 1 {
			c.log.Warn(c.waits, "error", err)
		}
		if sleep(ctx, storeBackoff.Delay(failures)) != nil {
			return
		}
	}
}

// consume records reports until ctx is done or the client is closed. It returns an error if the first declaration of
// the queue fails. Later failures do not end it, because its worker reconnects and redeclares a deleted queue.
// Therefore collect counts only failures before the first success.
func (c *collector[T]) consume(ctx context.Context) error {
	if err := c.declare(ctx); err != nil {
		return err
	}
	arrived := make(chan *report[T])
	w, err := reprise.NewWorker(c.client, reprise.WorkerConfig{
		Queue:        c.queue,
		Topology:     c.topology,
		Handler:      reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error { return c.take(ctx, m, arrived) }),
		AsDelivered:  true,
		Strategy:     receiveOnly(),
		Concurrency:  maxReports,
		Prefetch:     maxReports,
		CrashLimit:   -1,
		DrainTimeout: drainTimeout,
	})
	if err != nil {
		return err
	}
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var writer sync.WaitGroup
	writer.Go(func() { c.gather(writing, arrived) })
	err = w.Run(ctx)
	stop()
	writer.Wait()
	return err
}

// report is a report that is not recorded yet.
type report[T any] struct {
	it    T
	id    string        // message id
	noted chan struct{} // closed when the report is recorded or dropped
}

var errNoReport = errors.New("message is not a report")

// take passes the report in m to gather and waits until the report is recorded or dropped. If m is not a report, take
// ignores it.
func (c *collector[T]) take(ctx context.Context, m *reprise.Delivery, arrived chan<- *report[T]) error {
	it, ok := c.read(m)
	if !ok {
		c.log.Warn("report ignored", "queue", m.Queue, "message_id", m.MessageID, "error", errNoReport)
		return nil
	}
	r := &report[T]{it: it, id: m.MessageID, noted: make(chan struct{})}
	select {
	case arrived <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-r.noted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// gather records reports until ctx is done. Reports that arrive during a transaction form the next batch.
func (c *collector[T]) gather(ctx context.Context, arrived <-chan *report[T]) {
	for {
		var batch []*report[T]
		select {
		case r := <-arrived:
			batch = append(batch, r)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < maxReports; {
			select {
			case r := <-arrived:
				batch = append(batch, r)
			default:
				more = false
			}
		}
		if c.noteAll(ctx, batch) != nil {
			return
		}
	}
}

// maxRefusals is the number of refusals by the database after which a single report is dropped. Any publisher can send a
// report, and a report that the database refuses must not block other reports.
const maxRefusals = 3

// noteAll records reports together. If the database refuses the batch, noteAll records the reports one by one, and
// drops a report that the database refuses repeatedly. It returns an error only if ctx is done.
func (c *collector[T]) noteAll(ctx context.Context, batch []*report[T]) error {
	var all []T
	for _, r := range batch {
		all = append(all, r.it)
	}
	refusals := 0
	for failures := 1; ; failures++ {
		err := c.note(ctx, all)
		if !errors.Is(err, ErrUnavailable) {
			refusals++
		}
		switch {
		case err == nil:
			for _, r := range batch {
				close(r.noted)
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrUnavailable):
		case len(batch) > 1:
			for _, r := range batch {
				if err := c.noteAll(ctx, []*report[T]{r}); err != nil {
					return err
				}
			}
			return nil
		case refusals >= maxRefusals:
			c.log.Warn("report ignored", "queue", c.queue, "message_id", batch[0].id, "error", err)
			close(batch[0].noted)
			return nil
		}
		delay := storeBackoff.Delay(failures)
		c.log.Warn(c.waits, "error", err, "next_try", delay)
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}
