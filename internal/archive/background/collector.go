package background

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Collector declares a queue to which reports are published, and records the reports in the archive.
type Collector[T any] struct {
	client   *reprise.Client
	log      *slog.Logger
	queue    string
	topology topology.Topology // declaration of the queue
	waits    string            // log message for reports that cannot be recorded yet

	declaring chan struct{} // has one element while a caller declares the queue

	read func(*reprise.Delivery) (T, bool)
	note func(context.Context, []T) error // in one transaction
}

// NewCollector returns a collector for the first queue of a topology. The function note records reports in one transaction.
func NewCollector[T any](c *reprise.Client, log *slog.Logger, t topology.Topology, waits string, read func(*reprise.Delivery) (T, bool), note func(context.Context, []T) error) *Collector[T] {
	return &Collector[T]{
		client: c, log: log, queue: t.Queues[0].Name, topology: t, waits: waits, read: read, note: note,
		declaring: make(chan struct{}, 1),
	}
}

// maxReports is the maximum number of unacked reports, and the maximum number of reports in one transaction.
const maxReports = 64

// Declare declares the queue, one caller at a time: RabbitMQ 3.10 closes the connection, with all its consumers, if two callers
// create the same quorum queue.
func (c *Collector[T]) Declare(ctx context.Context) (err error) {
	defer failed.Annotate(&err, "cannot declare queue %s", c.queue)
	select {
	case c.declaring <- struct{}{}:
		defer func() { <-c.declaring }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.client.Declare(ctx, c.topology)
}

// Collect records reports until ctx is done or the client is closed. Several processes may collect reports for one
// archive.
func (c *Collector[T]) Collect(ctx context.Context) {
	for failures := 1; ; failures++ {
		err := c.consume(ctx)
		if ctx.Err() != nil || errors.Is(err, reprise.ErrClosed) {
			return
		}
		if err != nil && failures == 1 {
			c.log.Warn(c.waits, "error", err)
		}
		if retry.Sleep(ctx, StoreBackoff.Delay(failures)) != nil {
			return
		}
	}
}

// consume records reports until ctx is done or the client is closed. It returns an error if the first declaration of
// the queue fails. Later failures do not end it, because its worker reconnects and redeclares a deleted queue.
// Therefore collect counts only failures before the first success.
func (c *Collector[T]) consume(ctx context.Context) error {
	if err := c.Declare(ctx); err != nil {
		return err
	}
	arrived := make(chan *report[T])
	w, err := reprise.NewWorker(c.client, reprise.WorkerConfig{
		Queue:        c.queue,
		Topology:     c.topology,
		Handler:      reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error { return c.take(ctx, m, arrived) }),
		AsDelivered:  true,
		Strategy:     ReceiveOnly(),
		Concurrency:  maxReports,
		Prefetch:     maxReports,
		CrashLimit:   -1,
		DrainTimeout: DrainTimeout,
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
func (c *Collector[T]) take(ctx context.Context, m *reprise.Delivery, arrived chan<- *report[T]) error {
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
func (c *Collector[T]) gather(ctx context.Context, arrived <-chan *report[T]) {
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
func (c *Collector[T]) noteAll(ctx context.Context, batch []*report[T]) error {
	var all []T
	for _, r := range batch {
		all = append(all, r.it)
	}
	refusals := 0
	for failures := 1; ; failures++ {
		err := c.note(ctx, all)
		if !errors.Is(err, store.ErrUnavailable) {
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
		case errors.Is(err, store.ErrUnavailable):
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
		delay := StoreBackoff.Delay(failures)
		c.log.Warn(c.waits, "error", err, "next_try", delay)
		if err := retry.Sleep(ctx, delay); err != nil {
			return err
		}
	}
}
