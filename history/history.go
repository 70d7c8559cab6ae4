package history

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// DefaultPrefix is the default of Config.Prefix.
const DefaultPrefix = "reprise_history_"

// Bounds of a database.
const (
	MaxQueues = 1_000 // that have a history; others are ignored
	MaxMarks  = 1_000 // the newest are kept

	maxWorkers = 20_000 // whose totals are known
)

// Config adjusts a History. Dialect is required.
type Config struct {
	// Dialect is the kind of SQL that the database speaks.
	Dialect failed.Dialect

	// Prefix begins the names of tables: at most 40 lowercase letters, digits and underscores. Default
	// "reprise_history_".
	Prefix string

	// Clock returns the time. Default time.Now.
	Clock func() time.Time

	// Logger receives "history is not recorded" with error (Warn), and "history is recorded again" (Info). Default: none.
	Logger *slog.Logger
}

var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// Validate reports missing and invalid settings, with advice.
func (c Config) Validate() error {
	if err := c.Dialect.Validate(); err != nil {
		return fmt.Errorf("history: Config.%w", err)
	}
	if c.Prefix != "" && !prefixes.MatchString(c.Prefix) {
		return fmt.Errorf("history: Config.Prefix must be at most 40 lowercase letters, digits and underscores, and not begin with a digit: got %q (empty means %s)", c.Prefix, DefaultPrefix)
	}
	return nil
}

// History is the history of work queues in an SQL database. Its methods are safe for concurrent use.
type History struct {
	cfg Config // with defaults
	db  *sqlkit.DB

	mu    sync.Mutex
	heard map[string]heard // unrecorded statuses by worker

	recorder recorder // of Run
}

var errNoDatabase = errors.New("history: Open needs a database: sql.Open returns one")

// Open returns the history in db, which stays the caller's to close. It creates missing tables, and refuses
// tables of a newer version. Any number of processes may open one.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*History, error) {
	if db == nil {
		return nil, errNoDatabase
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	h := &History{cfg: cfg, db: sqlkit.New(db, cfg.Dialect, cfg.Prefix), heard: map[string]heard{}}
	if err := h.db.Create(ctx, tables); err != nil {
		return nil, fmt.Errorf("history: opening it in %s: %w", cfg.Dialect, err)
	}
	return h, nil
}

// Config returns the configuration, with its defaults.
func (h *History) Config() Config { return h.cfg }

// now is the time, to the millisecond, in UTC.
func (h *History) now() time.Time { return h.cfg.Clock().UTC().Truncate(time.Millisecond) }

// heard is the newest status of a worker.
type heard struct {
	queue   string
	totals  Totals
	began   time.Time // start of the worker, by our clock
	at      time.Time
	sent    time.Time // by the clock of the worker
	stopped bool
}

// Observe takes the status of a worker, for fleet.List.Observe. It does not wait. Run records the status.
func (h *History) Observe(s topology.WorkerStatus) {
	at := h.now()
	now := heard{
		queue: s.Queue, totals: Totals{Counts: s.Counts, Took: s.Took}, began: at.Add(-max(0, s.Sent.Sub(s.Started))), at: at, sent: s.Sent,
		stopped: s.State == topology.WorkerStopped,
	}
	if !now.totals.plausible() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, found := h.heard[s.ID]
	if found && last.sent.After(now.sent) || !found && len(h.heard) >= maxWorkers {
		return
	}
	h.heard[s.ID] = now
}

// Archive lists the messages that have arrived. *failed.Archive is one.
type Archive interface {
	// Failures returns n messages that have arrived after a message, or fewer at the end.
	Failures(ctx context.Context, after failed.ID, n int) ([]failed.Failure, error)
}

// Sources of Run, besides observed statuses.
type Sources struct {
	// Archive has the messages that failed. Default: none.
	Archive Archive

	// Listening returns nil if statuses of workers would arrive. Other intervals are not Recorded. Default: always.
	Listening func(context.Context) error
}

// Every is the time between two transactions of Run.
const Every = topology.StatusInterval

// Run records observed statuses, and messages that arrive in the archive, until ctx ends. After an error of the database it
// continues, and does not lose numbers. Run can be called once. Several processes may run at a time.
func (h *History) Run(ctx context.Context, from Sources) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	h.recorder.until = h.now()
	wrong := ""
	for {
		err := h.Record(ctx, from)
		switch {
		case err == nil && wrong != "":
			h.cfg.Logger.Info("history is recorded again")
			wrong = ""
		case err != nil && ctx.Err() == nil && err.Error() != wrong:
			wrong = err.Error()
			h.cfg.Logger.Warn("history is not recorded", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlkit.CommitTimeout)
			defer cancel()
			if err := h.Record(last, Sources{Archive: from.Archive}); err != nil { // workers that end now announce no more totals
				h.cfg.Logger.Warn("history is not recorded", "error", err)
			}
			return
		}
	}
}
