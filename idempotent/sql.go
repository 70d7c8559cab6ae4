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

// purgeBatch is how many rows one statement of a purge deletes, so that none holds
// locks for long.
const purgeBatch = 1000

// SQLConfig describes an SQL store. Dialect is required.
type SQLConfig struct {
	// Dialect is what the database speaks: PostgreSQL or SQLite.
	Dialect Dialect

	// Table is the name of the store's table; in PostgreSQL it may begin with
	// a schema and a point. Letters are taken as they are written, upper and lower
	// case differing in PostgreSQL. Default "reprise_idempotent".
	Table string

	// PurgeEvery makes each so many-th Complete delete rows whose time is over, up
	// to 1000 of them, so that the table does not grow for ever. Negative: call
	// Purge yourself. Default 100.
	PurgeEvery int

	// Clock replaces the database's clock, for tests: time.Now is the one of a
	// testing/synctest bubble. All who share the table need the same. Default: the
	// database's.
	Clock func() time.Time
}

func (c SQLConfig) withDefaults() SQLConfig {
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.PurgeEvery = cmp.Or(c.PurgeEvery, DefaultPurgeEvery)
	return c
}

// Validate reports what is missing or cannot work and what to write instead.
func (c SQLConfig) Validate() error {
	if err := c.Dialect.Validate(); err != nil {
		return fmt.Errorf("idempotent: SQLConfig.%w", err)
	}
	return validateTable(c.Dialect, c.withDefaults().Table)
}

// SQL is a Store in a table of an SQL database. It is for workers in any number
// of processes, and as durable as the database.
//
// Each method is one statement, a transaction of its own. Claim is two where the
// key is not free. They want READ COMMITTED, PostgreSQL's default, and a
// connection beside that of the handler: a pool of one, whose connection the
// handler has, cannot extend the lease.
//
// Leases and retentions are measured by the database's clock, and rounded up to
// whole milliseconds. The clocks of the workers' machines differ, and one that is
// fast by more than a lease would take over keys that others are at work on.
//
// In SQLite there is one writer at a time. Set the write-ahead log, and a busy
// timeout, for which a statement waits whether its context has ended or not: with
// modernc.org/sqlite
// "file:reprise.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)".
type SQL struct {
	db          *sqlkit.DB
	cfg         SQLConfig // with defaults
	say         statements
	completions atomic.Int64
}

var _ Store = (*SQL)(nil)

// OpenSQL returns the store in db, which stays the caller's to close. It creates the
// table where there is none, as Migrate does, and asks for no more than reading it
// where there is one.
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

// NewSQL returns the store in db without talking to the database: for a program that
// begins before its database does, or whose tables are made by a tool. The table has
// to be there when the store is first used: call Migrate, or run what Schema returns.
func NewSQL(db *sql.DB, cfg SQLConfig) (*SQL, error) {
	if db == nil {
		return nil, errors.New("idempotent: an SQL store needs a database: sql.Open returns one")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &SQL{db: sqlkit.New(db, cfg.Dialect, ""), cfg: cfg.withDefaults()}
	s.say = statementsOf(cfg.Dialect, s.cfg.Table, databaseTime(cfg.Dialect))
	if s.cfg.Clock != nil {
		// The time becomes the last argument of those statements that have NOW.
		s.say.put = statementsOf(cfg.Dialect, s.cfg.Table, "CAST($5 AS BIGINT)").put
		last := statementsOf(cfg.Dialect, s.cfg.Table, "CAST($2 AS BIGINT)")
		s.say.read, s.say.purge = last.read, last.purge
	}
	if every := int64(s.cfg.PurgeEvery); every > 0 {
		s.completions.Store(rand.Int64N(every)) // else processes that do less than that would never purge
	}
	return s, nil
}

// Schema returns the statements that create the table and its index where they do
// not exist, for those who have a tool that does it.
func (s *SQL) Schema() []string { return schemaOf(s.cfg.Dialect, s.cfg.Table) }

// Migrate creates the table and its index if the table does not exist. Any number
// of processes may call it, also at once, and while others use the table.
func (s *SQL) Migrate(ctx context.Context) error {
	// Not left to IF NOT EXISTS: for an index that exists, too, PostgreSQL locks
	// its table, and so would wait for all transactions under way and hold up all
	// others meanwhile.
	if _, err := s.read(ctx, pool{s.db}, ""); err == nil {
		return s.db.Watch(ctx)
	}
	begin := s.cfg.Dialect.WritingAlone(schemaLock)
	if s.cfg.Dialect == SQLite {
		begin = []string{sqlkit.Immediate} // the wait is the connection's
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
		return fmt.Errorf("idempotent: creating table %s: %w", s.cfg.Table, err)
	}
	return s.db.Watch(ctx)
}

// Healthy returns nil if the table can be read, or else why not. ctx should have a deadline.
func (s *SQL) Healthy(ctx context.Context) error {
	if _, err := s.read(ctx, pool{s.db}, ""); err != nil {
		return fmt.Errorf("idempotent: %w", err)
	}
	return nil
}

// Claim implements Store.
func (s *SQL) Claim(ctx context.Context, key, token string, lease time.Duration) (Claim, error) {
	if err := s.db.Watch(ctx); err != nil { // where nobody has called Migrate
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

// Purge deletes all rows whose time is over, and returns how many. It may be
// stopped at any time by ctx, and run while the store is used.
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

// querier runs statements in the pool, each a transaction, or in a transaction of the caller.
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

type inTx struct{ *sql.Tx }

func (t inTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t inTx) row(ctx context.Context, query string, args []any, dest ...any) error {
	return t.QueryRowContext(ctx, query, args...).Scan(dest...)
}

// claim gives the key to token for d, as claimed or as done, or says who has it.
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
		// It has become free meanwhile.
	}
}

func (s *SQL) put(ctx context.Context, q querier, key, token string, d time.Duration, done bool) (ok bool, err error) {
	n, err := q.exec(ctx, s.say.put, s.timed(key, token, milliseconds(d), done)...)
	return n > 0, err
}

// read returns who has a key: State 0 says that it is free.
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
		return 0, fmt.Errorf("idempotent: purging table %s: %w", s.cfg.Table, err)
	}
	return n, nil
}

// completed counts completions, and purges now and then.
func (s *SQL) completed(ctx context.Context) {
	if s.cfg.PurgeEvery > 0 && s.completions.Add(1)%int64(s.cfg.PurgeEvery) == 0 {
		// The key is done, whatever comes of this; what is left over is there the
		// next time.
		_, _ = s.purge(ctx)
	}
}

// timed appends the time to the arguments of a statement that wants it from us.
func (s *SQL) timed(args ...any) []any {
	if s.cfg.Clock != nil {
		args = append(args, s.cfg.Clock().UnixMilli())
	}
	return args
}

// milliseconds rounds up: no lease is shorter than what was asked for.
func milliseconds(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Millisecond)))
}
