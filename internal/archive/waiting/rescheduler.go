package waiting

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
)

// Config configures a Rescheduler. The zero value selects the defaults.
type Config struct {
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
// Config.Logger receives:
//
//	retries wait       error, next_try            (Warn: the database is not available; without next_try: cannot declare the queue)
//	wait queue blocked queue, wait_queue, messages, cause, remedy (Warn: see Blocked)
//	report ignored     queue, message_id, error   (Warn: a message in the queue is not a report, or no database accepts it)
type Rescheduler struct {
	client  *reprise.Client
	archive *store.Archive
	cfg     Config

	mu      sync.Mutex
	watched map[store.WaitingPlace]watched
}

// New returns a Rescheduler. Call Run to start it. New does not connect to the broker or to the
// database.
func New(c *reprise.Client, a *store.Archive, cfg Config) *Rescheduler {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Rescheduler{client: c, archive: a, cfg: cfg}
}

// forgetEvery is the interval at which Run removes overdue retries.
const forgetEvery = 15 * time.Second

// Run receives reports until ctx is done.
func (r *Rescheduler) Run(ctx context.Context) error {
	a := r.archive
	read := func(m *reprise.Delivery) (protocol.RetryReport, bool) { return protocol.ReadRetryReport(m.Body) }
	reports := background.NewCollector(r.client, r.cfg.Logger, a.RetriesTopology(), "retries wait", read, a.NoteRetries)
	var running sync.WaitGroup
	running.Go(func() { reports.Collect(ctx) })
	for retry.Sleep(ctx, forgetEvery) == nil {
		_ = r.findBlocked(ctx)
		_ = a.ForgetOverdue(ctx) // lists omit these rows anyway, and Run tries again after the next interval
	}
	running.Wait()
	return nil
}
