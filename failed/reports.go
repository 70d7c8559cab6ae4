package failed

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// reports asks workers for the outcomes of what a Replayer sends, and takes their reports into the archive.
type reports struct {
	client  *reprise.Client
	archive *Archive
	log     *slog.Logger
}

// maxReports is how many reports are taken at a time, and noted in one transaction.
const maxReports = 64

// declare makes sure that the queue for outcomes exists.
func (r *reports) declare(ctx context.Context) (err error) {
	defer annotate(&err, "declaring the queue for outcomes")
	return r.client.Declare(ctx, r.archive.outcomeTopology())
}

// take notes reports until ctx ends. Several processes may do so for one archive.
func (r *reports) take(ctx context.Context) {
	for failures := 1; ; failures++ {
		err := r.declare(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		delay := storeBackoff.Delay(failures)
		r.log.Warn("outcomes wait", "error", err, "next_try", delay)
		if sleep(ctx, delay) != nil {
			return
		}
	}
	arrived := make(chan *reported)
	w, err := reprise.NewWorker(r.client, reprise.WorkerConfig{
		Queue: r.archive.outcomeQueue(),
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
			o, ok := topology.ReadOutcome(m.Headers)
			if !ok {
				r.log.Warn("report ignored", "queue", m.Queue, "message_id", m.MessageID)
				return nil
			}
			one := &reported{outcome: o, noted: make(chan struct{})}
			select {
			case arrived <- one:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			select {
			case <-one.noted:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}),
		AsDelivered:  true,
		Strategy:     keep(),
		Concurrency:  maxReports,
		Prefetch:     maxReports,
		CrashLimit:   -1,
		DrainTimeout: drainTimeout,
	})
	if err != nil {
		r.log.Error("outcomes are not taken", "error", err)
		return
	}
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var writer sync.WaitGroup
	writer.Go(func() { r.note(writing, arrived) })
	err = w.Run(ctx)
	stop()
	writer.Wait()
	if err != nil && !errors.Is(err, reprise.ErrClosed) {
		r.log.Error("outcomes are not taken", "error", err)
	}
}

// reported is a report that waits to be noted.
type reported struct {
	outcome topology.Outcome
	noted   chan struct{} // closed when it is
}

// note notes what has arrived while it noted the reports before, until ctx ends.
func (r *reports) note(ctx context.Context, arrived <-chan *reported) {
	for {
		var batch []*reported
		var outcomes []topology.Outcome
		add := func(one *reported) { batch, outcomes = append(batch, one), append(outcomes, one.outcome) }
		select {
		case one := <-arrived:
			add(one)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(batch) < maxReports; {
			select {
			case one := <-arrived:
				add(one)
			default:
				more = false
			}
		}
		for failures := 1; ; failures++ {
			err := r.archive.noteOutcomes(ctx, outcomes)
			if err == nil {
				break
			}
			delay := storeBackoff.Delay(failures)
			if ctx.Err() == nil {
				r.log.Warn("outcomes wait", "error", err, "next_try", delay)
			}
			if sleep(ctx, delay) != nil {
				return
			}
		}
		for _, one := range batch {
			close(one.noted)
		}
	}
}
