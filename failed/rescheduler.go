package failed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// ReschedulerConfig adjusts a Rescheduler. The zero value means the defaults.
type ReschedulerConfig struct {
	// Logger receives the events listed at Rescheduler. Default: none.
	Logger *slog.Logger
}

// Rescheduler takes the reports of announced workers on their retries into an Archive, which lists them (see Archive.Waiting), and acts on
// the messages that wait: see Act.
//
//	worker ─► retry ─► wait queue
//	  └─► topology.RetriesExchange ─► queue of the archive ─► Rescheduler ─► Archive.Waiting
//
// It declares the exchange, and a queue with room for 1,000 reports of up to 100 retries: while no Rescheduler runs, the oldest are
// dropped beyond that. The broker deletes the queue after 30 days without a consumer. Any number of Reschedulers may share an archive.
//
// Its Logger receives:
//
//	retries wait       error, next_try            (Warn: the store does not answer; without next_try: the queue cannot be declared)
//	report ignored     queue, message_id, error   (Warn: a message in the queue is no report, or no database takes it)
type Rescheduler struct {
	client  *reprise.Client
	archive *Archive
	cfg     ReschedulerConfig
}

// NewRescheduler returns a Rescheduler for Run to start. It does not talk to the broker or to the database.
func NewRescheduler(c *reprise.Client, a *Archive, cfg ReschedulerConfig) (*Rescheduler, error) {
	switch {
	case a == nil:
		return nil, errors.New("failed: NewRescheduler needs an Archive: Open returns one")
	case c == nil:
		return nil, errors.New("failed: NewRescheduler needs a Client: reprise.Dial returns one")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Rescheduler{client: c, archive: a, cfg: cfg}, nil
}

// forgetEvery is the time between two looks for retries whose time is over.
const forgetEvery = 15 * time.Second

// Run takes reports until ctx ends.
func (r *Rescheduler) Run(ctx context.Context) error {
	a := r.archive
	t := a.retriesTopology()
	reports := &collector[topology.RetryReport]{
		client: r.client, archive: a, log: r.cfg.Logger, queue: t.Queues[0].Name, topology: t, waits: "retries wait",
		read: func(m *reprise.Message) (topology.RetryReport, bool) { return topology.ReadRetryReport(m.Body) },
		note: a.noteRetries,
	}
	var running sync.WaitGroup
	running.Go(func() { reports.collect(ctx) })
	for sleep(ctx, forgetEvery) == nil {
		_ = a.forgetOverdue(ctx) // they are not listed, and there is another look
	}
	running.Wait()
	return nil
}

// retriesTopology declares the queue that workers report retries to.
func (a *Archive) retriesTopology() topology.Topology {
	t := topology.Retries()
	name := topology.RetriesQueuePrefix + a.origin
	t.Queues = []topology.Queue{{
		Name: name,
		Args: topology.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(math.MaxInt32),
			"x-max-length":     int64(1000),
			"x-expires":        int64(30 * 24 * time.Hour / time.Millisecond),
		},
	}}
	t.Bindings = []topology.Binding{{Exchange: topology.RetriesExchange, Queue: name, RoutingKey: "#"}}
	return t
}
