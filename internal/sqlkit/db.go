// Package sqlkit is what the stores in databases have in common: statements for both dialects,
// transactions with time limits, rows as a sequence, and times as numbers.
package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"time"
)

// Time limits. A console gives up on a request after 30 s, so that what it asks for has to
// fail before that.
const (
	ReadLimit  = 10 * time.Second // of a query
	WriteLimit = 20 * time.Second // of a transaction, with the wait for other writers
	LongLimit  = 5 * time.Minute  // of what changes many rows at once: see Long
)

// DB is a database as the stores use it. Every statement has a time limit, and in SQLite
// a file that is gone is noticed before the caller relies on what it wrote. Errors are
// explained: see ErrUnavailable.
//
// Statements are written for both dialects: $1 and so on are arguments, {name} is the name of a
// table or an index, which begins with the prefix of New.
type DB struct {
	pool    *sql.DB
	dialect Dialect
	prefix  string
	file    watched
}

// New returns the database of a pool. The pool stays the caller's.
func New(pool *sql.DB, d Dialect, prefix string) *DB {
	return &DB{pool: pool, dialect: d, prefix: prefix, file: watched{sqlite: d == SQLite}}
}

var names = regexp.MustCompile(`\{([a-z_]+)\}`)

func (d *DB) sql(statement string) string {
	return d.dialect.Args(names.ReplaceAllString(statement, d.prefix+"$1"))
}

type longKey struct{}

// Long returns a context in which transactions have LongLimit instead of WriteLimit, and
// queries instead of ReadLimit. The statements that begin a transaction keep theirs.
func Long(ctx context.Context) context.Context { return context.WithValue(ctx, longKey{}, true) }

func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Value(longKey{}) != nil {
		limit = LongLimit
	}
	return context.WithTimeout(ctx, limit)
}

// Exec runs one statement that is a transaction of its own, and returns the number of
// rows that it has changed.
func (d *DB) Exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	if err := d.file.check(false); err != nil {
		return 0, err
	}
	begun := time.Now()
	ctx, cancel := limited(ctx, WriteLimit)
	defer cancel()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return 0, explain(err, begun)
	}
	defer conn.Close() // when the file has been checked: the last connection to close removes its log
	result, err := conn.ExecContext(ctx, d.sql(query), args...)
	if err != nil {
		return 0, explain(err, begun)
	}
	if err := d.file.check(true); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Begin begins a transaction that the caller ends. It has no time limit but that of ctx.
// Committed has to be called after its end.
func (d *DB) Begin(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	if err := d.file.check(false); err != nil {
		return nil, err
	}
	begun := time.Now()
	tx, err := d.pool.BeginTx(ctx, options)
	return tx, explain(err, begun)
}

// Committed returns an error if what was just committed went into a file that is gone.
func (d *DB) Committed() error { return d.file.check(false) }

// Transaction runs f in a transaction that the statements of begin begin. It is committed if f
// returns nil. If ctx ends in the middle of that, its outcome is waited for nevertheless: for
// Patience, and then it is ErrUnknown. ErrGone, if the file was gone at the end.
func (d *DB) Transaction(ctx context.Context, begin []string, f func(*Tx) error) error {
	if err := d.file.check(false); err != nil {
		return err
	}
	begun := time.Now()
	starting, started := context.WithTimeout(ctx, WriteLimit)
	defer started()
	ctx, cancel := limited(ctx, WriteLimit)
	defer cancel()
	err := transaction(starting, d.pool, begin, func(conn *sql.Conn) error { return f(&Tx{d, ctx, conn}) }, func() error { return d.file.check(true) })
	return explain(err, begun)
}

// Write runs one statement in a transaction that waits for its turn, and returns the number of rows that it has changed.
func (d *DB) Write(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = d.Transaction(ctx, d.dialect.Writing(), func(tx *Tx) error {
		changed, err = tx.Exec(query, args...)
		return err
	})
	return changed, err
}

// Watch notes which file the database is in, if it is SQLite: call it when the tables are
// there. From then on, ErrGone is returned when the file is not where it was.
func (d *DB) Watch(ctx context.Context) error {
	begun := time.Now()
	return explain(d.file.watch(ctx, d.pool), begun)
}

// Compact rewrites an SQLite file without what was deleted, and empties its write-ahead log. It does nothing in PostgreSQL. No
// transaction writes meanwhile, and the log is emptied when no transaction reads what was before.
func (d *DB) Compact(ctx context.Context) error {
	if d.dialect != SQLite {
		return nil
	}
	if err := d.file.check(false); err != nil {
		return err
	}
	begun := time.Now()
	ctx, cancel := limited(ctx, WriteLimit)
	defer cancel()
	conn, err := d.pool.Conn(ctx)
	if err != nil {
		return explain(err, begun)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `PRAGMA busy_timeout = 20000`); err != nil {
		return explain(err, begun)
	}
	if _, err := conn.ExecContext(ctx, `VACUUM`); err != nil {
		return explain(err, begun)
	}
	var busy, pages, moved int
	if err := conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &pages, &moved); err != nil {
		return explain(err, begun)
	}
	if busy != 0 {
		return explain(errors.New("other transactions read the write-ahead log"), begun)
	}
	return d.file.check(true)
}

// WriteAhead sets the journal mode of an SQLite file to WAL, so that readers and a writer do not wait for each other. SQLite refuses
// this at once while another connection does the same, whatever its busy_timeout, so it is tried again for some seconds.
func (d *DB) WriteAhead(ctx context.Context) (err error) {
	if err := d.file.check(false); err != nil {
		return err // a new connection would make another file in its place
	}
	begun := time.Now()
	ctx, cancel := limited(ctx, WriteLimit)
	defer cancel()
	for pause := time.Millisecond; pause < 4*time.Second; pause *= 2 {
		if _, err = d.pool.ExecContext(ctx, "PRAGMA journal_mode = WAL"); !isBusy(err) {
			break
		}
		select {
		case <-ctx.Done():
			return explain(err, begun)
		case <-time.After(pause):
		}
	}
	return explain(err, begun)
}
