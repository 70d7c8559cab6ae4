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
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// ReschedulerConfig configures a Rescheduler. The zero value selects the defaults.
type ReschedulerConfig struct {
	// Logger receives the events listed at Rescheduler. Default: none.
	Logger *slog.Logger
}

// Rescheduler receives the retry reports of announced workers and stores them in an Archive. Archive.Waiting lists the
// waiting messages, and Rescheduler.Act acts on them.
//
//	worker ─► retry ─► wait queue
//	  └─► protocol.RetriesExchange ─► queue of the archive ─► Rescheduler ─► Archive.Waiting
//
// A Rescheduler declares the exchange and a queue for 1,000 reports of up to 100 retries each. If the queue is full,
// the broker drops the oldest reports. The broker deletes the queue after 30 days without a consumer. Any number of
// Reschedulers can share an archive.
//
// ReschedulerConfig.Logger receives:
//
//	retries wait       error, next_try            (Warn: the database is not available; without next_try: cannot declare the queue)
//	wait queue blocked queue, wait_queue, messages, cause, remedy (Warn: see Blocked)
//	report ignored     queue, message_id, error   (Warn: a message in the queue is not a report, or no database accepts it)
type Rescheduler struct {
	client  *reprise.Client
	archive *Archive
	cfg     ReschedulerConfig

	mu      sync.Mutex
	watched map[waitingPlace]watched
}

// NewRescheduler returns a Rescheduler. Call Run to start it. NewRescheduler does not connect to the broker or to the
// database.
func NewRescheduler(c *reprise.Client, a *Archive, cfg ReschedulerConfig) (*Rescheduler, error) {
	switch {
	case a == nil:
		return nil, errors.New("failed: NewRescheduler: archive must not be nil")
	case c == nil:
		return nil, errors.New("failed: NewRescheduler: client must not be nil")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Rescheduler{client: c, archive: a, cfg: cfg}, nil
}

// forgetEvery is the interval at which Run removes overdue retries.
const forgetEvery = 15 * time.Second

// Run receives reports until ctx is done.
func (r *Rescheduler) Run(ctx context.Context) error {
	a := r.archive
	t := a.retriesTopology()
	reports := &collector[protocol.RetryReport]{
		client: r.client, archive: a, log: r.cfg.Logger, queue: t.Queues[0].Name, topology: t, waits: "retries wait",
		declaring: make(chan struct{}, 1),
		read:      func(m *reprise.Delivery) (protocol.RetryReport, bool) { return protocol.ReadRetryReport(m.Body) },
		note:      a.noteRetries,
	}
	var running sync.WaitGroup
	running.Go(func() { reports.collect(ctx) })
	for sleep(ctx, forgetEvery) == nil {
		_ = r.findBlocked(ctx)
		_ = a.forgetOverdue(ctx) // lists omit these rows anyway, and Run tries again after the next interval
	}
	running.Wait()
	return nil
}

// retriesTopology returns the topology of the queue to which workers report retries.
func (a *Archive) retriesTopology() topology.Topology {
	t := protocol.Retries()
	name := protocol.RetriesQueuePrefix + a.origin
	t.Queues = []topology.Queue{{
		Name: name,
		Args: topology.Table{
			"x-queue-type":     "quorum",
			"x-delivery-limit": int64(math.MaxInt32),
			"x-max-length":     int64(1000),
			"x-expires":        int64(30 * 24 * time.Hour / time.Millisecond),
		},
	}}
	t.Bindings = []topology.Binding{{Exchange: protocol.RetriesExchange, Queue: name, RoutingKey: "#"}}
	return t
}
