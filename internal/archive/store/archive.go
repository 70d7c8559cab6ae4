package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

const defaultPrefix = "reprise_failed_"

// Config configures an Archive. Dialect is required.
type Config struct {
	// Dialect is the SQL dialect of the database: SQLite or PostgreSQL.
	Dialect Dialect

	// Prefix is the prefix of table and index names. In PostgreSQL, the tables are in the first schema of the search path.
	// Default: "reprise_failed_".
	Prefix string

	// Redact specifies secrets to exclude from the search. The archive still stores them, because a replay needs the
	// complete message. A program that shows messages must call Message.Redact with the same rules. A new rule does not
	// affect the search for messages that are already archived.
	Redact []failed.Rule

	// Columns selects the values that Archive.Details shows in lists of messages, for example an order number.
	Columns []failed.Rule

	// Groups names groups of failures. Archive.Regroup applies a new rule to messages that are already archived.
	Groups []GroupRule

	// Retention specifies how long the archive keeps messages after their arrival. Purge removes older messages in any
	// state except replaying. Default: 0 (forever).
	Retention time.Duration

	// Rules overrides Retention for individual work queues.
	Rules []RetentionRule

	// Clock returns the current time. Default: time.Now.
	Clock func() time.Time

	// Logger receives four events: "purged" (Info) has the attributes by, messages, before and act. "erased" (Info) has
	// by and messages. "archive replaced" (Error) has error, see ErrUnavailable. "cannot read bindings" (Warn) has
	// error and next_try, see Destinations. Default: no logging.
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

// Validate reports invalid rules and explains how to fix them.
func (c Config) Validate() error {
	var errs []error
	for _, r := range c.Rules {
		if r.Retention <= 0 {
			errs = append(errs, failed.Invalid("retention of queue %q must be positive: got %s", r.Queue, r.Retention))
		}
	}
	for _, r := range slices.Concat(c.Redact, c.Columns) {
		errs = append(errs, r.Validate())
	}
	for _, r := range c.Groups {
		errs = append(errs, r.Validate())
	}
	return errors.Join(errs...)
}

// RetentionRule sets the retention of the messages that failed in one work queue.
type RetentionRule struct {
	Queue     string
	Retention time.Duration
}

// Expires reports whether c sets a retention. Otherwise Purge removes nothing.
func (c Config) Expires() bool { return c.Retention > 0 || len(c.Rules) > 0 }

// Archive is a store of failed messages in an SQL database.
type Archive struct {
	db      *sqlkit.DB
	cfg     Config // with defaults
	d       dialect
	origin  string // the name of the archive in its exports
	writing chan struct{}
	lineage
}

// Open returns the archive in db. It does not take ownership of db: the caller closes it. Open creates missing tables.
// If another version of this package has created the tables, Open returns an error. Any number of processes may open the same archive at the same time.
//
// In SQLite, Open sets the journal mode of the file to WAL. Do not pass a connection pool for ":memory:", because each
// connection would have a separate database.
func Open(ctx context.Context, db *sql.DB, cfg Config) (a *Archive, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	a = &Archive{db: sqlkit.New(db, cfg.Dialect, cfg.Prefix), cfg: cfg, d: dialect{cfg.Dialect}, writing: make(chan struct{}, 1)}
	defer failed.Annotate(&err, "cannot open the archive in %s", cfg.Dialect)
	if !a.ready(ctx) {
		if err := a.create(sqlkit.Long(ctx)); err != nil {
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

// Config returns the configuration, with defaults for unset fields.
func (a *Archive) Config() Config { return a.cfg }

// Now returns the current time in UTC, truncated to the millisecond.
func (a *Archive) Now() time.Time { return a.cfg.Clock().UTC().Truncate(time.Millisecond) }
