package history

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// DefaultPrefix is the default of Config.Prefix.
const DefaultPrefix = "reprise_history_"

// Limits of a database.
const (
	MaxQueues = 1_000 // queues with a history; other queues are ignored
	MaxMarks  = 1_000 // marks that were added earlier are removed

	maxWorkers = 20_000 // workers whose totals are stored
)

// Config configures a History. Dialect is required.
type Config struct {
	// Dialect is the SQL dialect of the database.
	Dialect store.Dialect

	// Prefix is the prefix of the table names. Default: "reprise_history_".
	Prefix string

	// Clock returns the current time. Default: time.Now.
	Clock func() time.Time

	// Logger receives "history is not recorded" with the attribute error (Warn), and "history is recorded again" (Info).
	// Default: none.
	Logger *slog.Logger
}

// History is the history of work queues in an SQL database. Its methods are safe for concurrent use.
type History struct {
	cfg Config // with defaults
	db  *sqlkit.DB

	mu       sync.Mutex
	observed map[string]observation // unrecorded statuses, by ID of the worker

	recorder recorder // state of Run
}

// Open returns the history in db. The caller closes db. Open creates missing tables, and returns an error for tables
// of a newer version. Any number of processes may open the same history.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*History, error) {
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	h := &History{cfg: cfg, db: sqlkit.New(db, cfg.Dialect, cfg.Prefix), observed: map[string]observation{}}
	if err := h.db.Create(ctx, tables); err != nil {
		return nil, fmt.Errorf("cannot open the history in %s: %w", cfg.Dialect, err)
	}
	return h, nil
}

// Config returns the configuration, including the defaults.
func (h *History) Config() Config { return h.cfg }

// now returns the current time in UTC, truncated to the millisecond.
func (h *History) now() time.Time { return h.cfg.Clock().UTC().Truncate(time.Millisecond) }

// observation is the latest status of a worker.
type observation struct {
	queue   string
	totals  Totals
	began   time.Time // start of the worker, by the local clock
	at      time.Time
	sent    time.Time // by the clock of the worker
	stopped bool
}

// Observe receives the status of a worker, which Run records later. Pass Observe to fleet.List.Observe. It does not
// block.
func (h *History) Observe(s protocol.WorkerStatus) {
	at := h.now()
	now := observation{
		queue: s.Queue, totals: Totals{Counts: s.Counts, Took: s.Took}, began: at.Add(-max(0, s.Sent.Sub(s.Started))), at: at, sent: s.Sent,
		stopped: s.State == protocol.WorkerStopped,
	}
	if !now.totals.plausible() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, found := h.observed[s.ID]
	if found && last.sent.After(now.sent) || !found && len(h.observed) >= maxWorkers {
		return
	}
	h.observed[s.ID] = now
}

// Archive lists archived messages. *store.Archive implements it.
type Archive interface {
	// Failures returns up to n messages that arrived after the message with the given ID, in the order of arrival.
	Failures(ctx context.Context, after failed.ID, n int) ([]store.Failure, error)
}

// Sources contains the sources of Run, in addition to the observed statuses.
type Sources struct {
	// Archive contains the failed messages. Default: no archive.
	Archive Archive

	// Listening returns nil if the process can receive the statuses of workers. While it returns an error, intervals
	// are not Recorded. Default: the process can always receive statuses.
	Listening func(context.Context) error
}

// Every is the interval between two transactions of Run.
const Every = protocol.StatusInterval

// Run records observed statuses, and messages that arrive in the archive, until ctx is done. After a database error it
// continues, and records the missing events later. It must be called only once. Several processes may record the same
// workers at the same time.
func (h *History) Run(ctx context.Context, from Sources) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	h.recorder.until = h.now()
	lastError := ""
	for {
		err := h.Record(ctx, from)
		switch {
		case err == nil && lastError != "":
			h.cfg.Logger.Info("history is recorded again")
			lastError = ""
		case err != nil && ctx.Err() == nil && err.Error() != lastError:
			lastError = err.Error()
			h.cfg.Logger.Warn("history is not recorded", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlkit.CommitTimeout)
			defer cancel()
			if err := h.Record(last, Sources{Archive: from.Archive}); err != nil { // for the final totals of workers
				h.cfg.Logger.Warn("history is not recorded", "error", err)
			}
			return
		}
	}
}
