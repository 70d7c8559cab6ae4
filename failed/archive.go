package failed

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// defaultPrefix is the default of Config.Prefix.
const defaultPrefix = "reprise_failed_"

// Config adjusts an Archive. Dialect is required.
type Config struct {
	// Dialect is what the database speaks: SQLite or PostgreSQL.
	Dialect Dialect

	// Prefix is what the names of tables and indexes begin with: at most 40 small
	// letters, digits and underscores. In PostgreSQL they are in the first schema of
	// the search path. Default "reprise_failed_".
	Prefix string

	// Redact are secrets that cannot be searched for. They are stored nevertheless,
	// since what is stored must be fit to be replayed: whoever shows messages calls
	// the function Redact with the same rules. A rule that is new hides nothing
	// from the search for messages that have arrived before.
	Redact []Rule

	// Retention is how long messages are kept after they arrived, whatever their
	// state, except those of a replay that is under way. Purge removes what is
	// older. Default 0: for ever.
	Retention time.Duration

	// Rules are retentions of single work queues, in place of Retention.
	Rules []RetentionRule

	// Clock tells the time. Default time.Now.
	Clock func() time.Time

	// Logger receives what is removed, "purged" with messages, before (Info), and
	// "archive is another one" with error (Error): see ErrUnavailable. Default: none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is missing or cannot work and what to write instead.
func (c Config) Validate() error {
	var errs []error
	if err := c.Dialect.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: Config.%w", ErrInvalid, err))
	}
	if c.Prefix != "" && !prefixes.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("%w: Config.Prefix %q: use at most 40 small letters, digits and underscores, not a digit first, or leave it empty for %s", ErrInvalid, c.Prefix, defaultPrefix))
	}
	if c.Retention < 0 {
		errs = append(errs, fmt.Errorf("%w: Config.Retention %s is negative: use 0 to keep messages for ever", ErrInvalid, c.Retention))
	}
	queues := make(map[string]bool)
	for _, r := range c.Rules {
		switch {
		case r.Retention <= 0:
			errs = append(errs, fmt.Errorf("%w: the retention of queue %q must be positive: got %s", ErrInvalid, r.Queue, r.Retention))
		case queues[r.Queue]:
			errs = append(errs, fmt.Errorf("%w: queue %q must have at most one retention", ErrInvalid, r.Queue))
		}
		queues[r.Queue] = true
	}
	for _, r := range c.Redact {
		errs = append(errs, r.Validate())
	}
	return errors.Join(errs...)
}

// RetentionRule is how long messages are kept that failed in a work queue.
type RetentionRule struct {
	Queue     string
	Retention time.Duration
}

// Expires reports whether Purge ever removes a message.
func (c Config) Expires() bool { return c.Retention > 0 || len(c.Rules) > 0 }

// Archive is a store of failed messages in an SQL database.
type Archive struct {
	db      *sqlkit.DB
	cfg     Config // with defaults
	d       dialect
	origin  string // the archive's name, in what it exports
	writing chan struct{}
	lineage
}

// Open returns the archive in db, which stays the caller's to close. It creates
// the tables where there are none and migrates those of older versions; tables of a
// newer version it refuses. Any number of processes may open one at once.
//
// In SQLite it sets the file's journal to WAL. A pool of connections to ":memory:"
// has as many databases as connections, and will not do.
func Open(ctx context.Context, db *sql.DB, cfg Config) (a *Archive, err error) {
	if db == nil {
		return nil, errNoDatabase
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	a = &Archive{db: sqlkit.New(db, cfg.Dialect, cfg.Prefix), cfg: cfg, d: dialect{cfg.Dialect}, writing: make(chan struct{}, 1)}
	defer annotate(&err, "opening the archive in %s", cfg.Dialect)
	if !a.ready(ctx) {
		if err := a.migrate(sqlkit.Long(ctx)); err != nil {
			return nil, err
		}
	}
	if err := a.openWaiting(ctx, db); err != nil {
		return nil, err
	}
	if err := a.db.Watch(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// Config returns the configuration, with its defaults.
func (a *Archive) Config() Config { return a.cfg }

// now is the time, to the millisecond, in UTC.
func (a *Archive) now() time.Time { return a.cfg.Clock().UTC().Truncate(time.Millisecond) }
