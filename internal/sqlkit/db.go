// Package sqlkit contains code for stores in a database: statements for all dialects, transactions with time limits,
// rows as a sequence, and times as numbers.
package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"time"
)

// Time limits. A console aborts a request after 30 s, so the query of the request must fail earlier.
const (
	ReadLimit  = 10 * time.Second // for a query, and for a page of the console
	WriteLimit = 20 * time.Second // for a transaction, including the wait for other writers
	LongLimit  = 5 * time.Minute  // for changes of many rows; see Long
)

// DB is the database of a store. Every statement has a time limit, except in transactions of Begin. In SQLite, DB detects
// a removed or replaced file before the caller relies on a write. DB classifies errors; see ErrUnavailable.
//
// Statements are valid for all dialects of their store: $1, $2, … are arguments, and {name} is the name of a table or an index, to
// which DB adds the prefix that was passed to New.
type DB struct {
	pool    *sql.DB
	dialect Dialect
	prefix  string
	file    watchedFile
}

// New returns a DB that uses a pool. The caller closes the pool.
func New(pool *sql.DB, d Dialect, prefix string) *DB {
	return &DB{pool: pool, dialect: d, prefix: prefix, file: watchedFile{sqlite: d == SQLite}}
}

var names = regexp.MustCompile(`\{([a-z_]+)\}`)

// Bind returns the statement and the arguments in the syntax of the driver, for a transaction that the caller has begun
// without DB.
func (d *DB) Bind(statement string, args ...any) (string, []any) {
	return d.dialect.Bind(names.ReplaceAllString(statement, d.prefix+"$1"), args)
}

func (d *DB) sql(statement string) string {
	return d.dialect.Args(names.ReplaceAllString(statement, d.prefix+"$1"))
}

type longKey struct{}

// Long returns a context in which LongLimit replaces ReadLimit and WriteLimit. The statements that begin a transaction
// still have WriteLimit.
func Long(ctx context.Context) context.Context { return context.WithValue(ctx, longKey{}, true) }

func isLong(ctx context.Context) bool { return ctx.Value(longKey{}) != nil }

func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if isLong(ctx) {
		limit = LongLimit
	}
	return context.WithTimeout(ctx, limit)
}

// Exec runs one statement in its own transaction, and returns the number of changed rows.
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
	defer conn.Close() // closed after the check, because closing the last connection removes the log
	query, args = d.Bind(query, args...)
	result, err := conn.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, explain(err, begun)
	}
	if err := d.file.check(true); err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Begin begins a transaction, which the caller must commit or roll back. Only ctx limits its time. The caller must call
// Committed after a commit.
func (d *DB) Begin(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	if err := d.file.check(false); err != nil {
		return nil, err
	}
	begun := time.Now()
	tx, err := d.pool.BeginTx(ctx, options)
	return tx, explain(err, begun)
}

// Committed returns ErrGone if the last commit went into a removed or replaced file.
func (d *DB) Committed() error { return d.file.check(false) }

// Transaction runs the statements in begin, which start a transaction, and then f. It commits if f returns nil. It
// waits at most CommitTimeout for the result of the commit, even if ctx is canceled. If the result is still unknown
// then, it returns ErrUnknown. It returns ErrGone if the file was removed or replaced before the commit completed.
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

// Write runs one statement in a transaction that waits for other writers, and returns the number of changed rows.
func (d *DB) Write(ctx context.Context, query string, args ...any) (changed int64, err error) {
	err = d.Transaction(ctx, d.dialect.Writing(), func(tx *Tx) error {
		changed, err = tx.Exec(query, args...)
		return err
	})
	return changed, err
}

// Watch records the identity of an SQLite file. Call it when the tables exist. Later calls of other methods return ErrGone
// if the file was removed or replaced.
func (d *DB) Watch(ctx context.Context) error {
	begun := time.Now()
	return explain(d.file.watch(ctx, d.pool), begun)
}

// Compact rewrites an SQLite file without deleted data, and empties its write-ahead log. In other databases it does nothing.
// While Compact runs, no other transaction can write. It can empty the log only when no transaction reads an older
// state.
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
		return explain(errors.New("cannot empty the write-ahead log while other transactions read it"), begun)
	}
	return d.file.check(true)
}

// WriteAhead sets the journal mode of an SQLite file to WAL, so that readers and a writer do not wait for each other.
// While another connection changes the mode, SQLite refuses the change immediately, even with a busy_timeout. WriteAhead
// therefore retries for a few seconds.
func (d *DB) WriteAhead(ctx context.Context) (err error) {
	if err := d.file.check(false); err != nil {
		return err // a new connection would create another file in its place
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
