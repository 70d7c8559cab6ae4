package idempotent

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Defaults of SQLConfig.
const (
	DefaultTable      = "reprise_idempotent"
	DefaultPurgeEvery = 100
)

// purgeBatch is the maximum number of rows that one statement of a purge deletes. The limit keeps locks short.
const purgeBatch = 1000

// SQLConfig configures an SQL store. Dialect is required.
type SQLConfig struct {
	// Dialect is the SQL dialect of the database.
	Dialect Dialect

	// Table is the name of the store's table. In PostgreSQL, a schema and a dot may precede the name, and names are
	// case-sensitive. Default: "reprise_idempotent".
	Table string

	// PurgeEvery is the number of completed keys between two purges. Each purge deletes up to 1000 expired rows, so
	// that the table does not grow without limit. A negative value disables these purges; call Purge instead. Default:
	// 100.
	PurgeEvery int

	// Clock replaces the clock of the database in tests. For example, time.Now is the clock of a testing/synctest
	// bubble. All users of the table need the same clock. Default: the clock of the database.
	Clock func() time.Time
}

func (c SQLConfig) withDefaults() SQLConfig {
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.PurgeEvery = cmp.Or(c.PurgeEvery, DefaultPurgeEvery)
	return c
}

// Validate reports missing and invalid settings and their valid values.
func (c SQLConfig) Validate() error {
	if err := c.Dialect.Validate(PostgreSQL, SQLite, MySQL); err != nil {
		return fmt.Errorf("idempotent: SQLConfig.%w", err)
	}
	return validateTable(c.Dialect, c.withDefaults().Table)
}

// SQL is a Store in a table of an SQL database. Workers in any number of processes can share it. It is as durable as
// the database.
//
// Claim, Complete and Release each run one statement, in a separate transaction. Claim runs a second statement if the
// key is not free, and Complete sometimes runs a second statement to purge (SQLConfig.PurgeEvery). In MySQL, both run one more. The
// statements need READ COMMITTED, the default of PostgreSQL, or REPEATABLE READ, the default of MySQL, and a connection in addition to the connection of the handler: if the
// handler uses the only connection of the pool, the store cannot extend the lease.
//
// The database clock measures leases and retentions, rounded up to whole milliseconds. The clocks of the workers are
// not used, because a worker whose clock is fast by more than a lease would take over keys from running handlers.
//
// SQLite permits one writer at a time. Set the write-ahead log and a busy timeout. A statement can wait for the whole
// busy timeout even if its context is canceled. Example for modernc.org/sqlite:
// "file:reprise.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)".
type SQL struct {
	db          *sqlkit.DB
	cfg         SQLConfig // with defaults
	say         statements
	completions atomic.Int64
}

var _ Store = (*SQL)(nil)

// OpenSQL returns the store in db. The caller closes db. If the table is missing, OpenSQL creates it as Migrate does.
// If the table exists, OpenSQL needs only the permission to read it.
func OpenSQL(ctx context.Context, db *sql.DB, cfg SQLConfig) (*SQL, error) {
	s, err := NewSQL(db, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.Migrate(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// NewSQL returns the store in db without a call to the database. Use it if the program starts before its database, or
// if a tool creates the tables. The table must exist at the first use of the store. To create it, call Migrate or run
// the statements from Schema.
func NewSQL(db *sql.DB, cfg SQLConfig) (*SQL, error) {
	if db == nil {
		return nil, errors.New("idempotent: database must not be nil (sql.Open returns one)")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &SQL{db: sqlkit.New(db, cfg.Dialect, ""), cfg: cfg.withDefaults()}
	s.say = statementsOf(cfg.Dialect, s.cfg.Table, cfg.Dialect.Clock())
	if s.cfg.Clock != nil {
		// The time becomes the last argument of the statements with NOW.
		integer := "BIGINT"
		if cfg.Dialect == MySQL {
			integer = "SIGNED"
		}
		s.say.put = statementsOf(cfg.Dialect, s.cfg.Table, "CAST($5 AS "+integer+")").put
		last := statementsOf(cfg.Dialect, s.cfg.Table, "CAST($2 AS "+integer+")")
		s.say.read, s.say.purge = last.read, last.purge
	}
	if every := int64(s.cfg.PurgeEvery); every > 0 {
		s.completions.Store(rand.Int64N(every)) // a random start, so that processes with few completions also purge
	}
	return s, nil
}

// Schema returns the statements that create the table and its index if they do not exist. Use it with a migration tool.
func (s *SQL) Schema() []string { return schemaOf(s.cfg.Dialect, s.cfg.Table) }

// Migrate creates the table and its index if the table does not exist. Several processes may call Migrate at the same
// time, and while other processes use the table.
func (s *SQL) Migrate(ctx context.Context) error {
	// IF NOT EXISTS is not sufficient: even for an existing index, PostgreSQL locks the table. The lock would wait for
	// all transactions that write to the table, and block later writes in the meantime.
	if _, err := s.read(ctx, pool{s.db}, ""); err == nil {
		return s.db.Watch(ctx)
	}
	begin := s.cfg.Dialect.WritingAlone(schemaLock)
	if s.cfg.Dialect == SQLite {
		begin = []string{sqlkit.Immediate} // the busy timeout of the connection limits the wait
	}
	err := s.db.Transaction(ctx, begin, func(tx *sqlkit.Tx) error {
		for _, statement := range s.Schema() {
			if _, err := tx.Exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("idempotent: cannot create table %s: %w", s.cfg.Table, err)
	}
	return s.db.Watch(ctx)
}

// Healthy returns nil if the table is readable, or else the cause. ctx should have a deadline.
func (s *SQL) Healthy(ctx context.Context) error {
	if _, err := s.read(ctx, pool{s.db}, ""); err != nil {
		return fmt.Errorf("idempotent: %w", err)
	}
	return nil
}

// Claim implements Store.
func (s *SQL) Claim(ctx context.Context, key, token string, lease time.Duration) (Claim, error) {
	if err := s.db.Watch(ctx); err != nil { // in case the program did not call Migrate
		return Claim{}, err
	}
	return s.claim(ctx, pool{s.db}, key, token, lease, false)
}

// Complete implements Store.
func (s *SQL) Complete(ctx context.Context, key, token string, retention time.Duration) error {
	ok, err := s.put(ctx, pool{s.db}, key, token, retention, true)
	if err != nil {
		return err
	}
	if !ok {
		return ErrLost
	}
	s.completed(ctx)
	return nil
}

// Release implements Store.
func (s *SQL) Release(ctx context.Context, key, token string) error {
	_, err := s.db.Exec(ctx, s.say.release, key, token)
	return err
}

// Purge deletes all expired rows and returns their number. The store can be used during the purge. If ctx is canceled,
// the purge stops.
func (s *SQL) Purge(ctx context.Context) (int64, error) {
	var total int64
	for {
		n, err := s.purge(ctx)
		total += n
		if err != nil || n < purgeBatch {
			return total, err
		}
	}
}

// querier runs statements either in the pool, each in its own transaction, or in a transaction of the caller.
type querier interface {
	exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	row(ctx context.Context, query string, args []any, dest ...any) error
}

type pool struct{ *sqlkit.DB }

func (p pool) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return p.Exec(ctx, query, args...)
}

func (p pool) row(ctx context.Context, query string, args []any, dest ...any) error {
	return p.Row(ctx, query, args...).Scan(dest...)
}

type inTx struct {
	*sql.Tx
	dialect Dialect
}

func (t inTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	query, args = t.dialect.Bind(query, args)
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t inTx) row(ctx context.Context, query string, args []any, dest ...any) error {
	query, args = t.dialect.Bind(query, args)
	return t.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// claim claims the key for token, or completes it if done is set, for the time d. If the key is not free, claim returns
// its state.
func (s *SQL) claim(ctx context.Context, q querier, key, token string, d time.Duration, done bool) (Claim, error) {
	for {
		ok, err := s.put(ctx, q, key, token, d, done)
		if err != nil {
			return Claim{}, err
		}
		if ok {
			return Claim{State: Claimed}, nil
		}
		got, err := s.read(ctx, q, key)
		if err != nil || got.State != 0 {
			return got, err
		}
		// The key has become free since the put. Repeat the put.
	}
}

func (s *SQL) put(ctx context.Context, q querier, key, token string, d time.Duration, done bool) (ok bool, err error) {
	n, err := q.exec(ctx, s.say.put, s.timed(key, token, milliseconds(d), done)...)
	if err == nil && s.say.owns != "" {
		err = q.row(ctx, s.say.owns, []any{key, token, done}, &n)
	}
	return n > 0, err
}

// read returns the state of a key. State 0 means that the key is free.
func (s *SQL) read(ctx context.Context, q querier, key string) (Claim, error) {
	var done bool
	var left int64
	err := q.row(ctx, s.say.read, s.timed(key), &done, &left)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Claim{}, nil
	case err != nil:
		return Claim{}, err
	case left <= 0:
		return Claim{}, nil
	case done:
		return Claim{State: Done}, nil
	}
	return Claim{State: Busy, Left: time.Duration(left) * time.Millisecond}, nil
}

func (s *SQL) purge(ctx context.Context) (int64, error) {
	n, err := s.db.Exec(ctx, s.say.purge, s.timed(purgeBatch)...)
	if err != nil {
		return 0, fmt.Errorf("idempotent: cannot purge table %s: %w", s.cfg.Table, err)
	}
	return n, nil
}

// completed counts completed keys, and purges after every PurgeEvery keys.
func (s *SQL) completed(ctx context.Context) {
	if s.cfg.PurgeEvery > 0 && s.completions.Add(1)%int64(s.cfg.PurgeEvery) == 0 {
		// The key is done, even if the purge fails. The next purge deletes the remaining rows.
		_, _ = s.purge(ctx)
	}
}

// timed appends the time of SQLConfig.Clock, if set, to the arguments of a statement with NOW.
func (s *SQL) timed(args ...any) []any {
	if s.cfg.Clock != nil {
		args = append(args, s.cfg.Clock().UnixMilli())
	}
	return args
}

// milliseconds rounds up, so that a lease is never shorter than requested.
func milliseconds(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}
