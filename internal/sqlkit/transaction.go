package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// Statements that begin a transaction with writes in SQLite. The transaction waits for other writers at the start,
// because SQLite fails a transaction that has read and then tries to write while another transaction writes. Wait
// limits the wait to the remaining time of the context, because SQLite does not notice the cancellation of the context.
const (
	Wait      = "PRAGMA busy_timeout"
	Immediate = "BEGIN IMMEDIATE"
)

// Begin begins a transaction in PostgreSQL with the time limit WriteLimit. Without the limit, a server that has lost
// the connection to its client would keep the locks of the transaction until the network reports the failure, which can
// take hours. Longer extends the statement timeout for a transaction with a Long context.
const (
	Begin  = "BEGIN; SET LOCAL statement_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '20s'"
	Longer = "SET LOCAL statement_timeout = '5min'"
)

// Statements that begin a transaction in MySQL. With the default isolation level, a statement that finds no row would lock
// the gap, and block the inserts of other transactions.
const (
	Committed        = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
	StartTransaction = "START TRANSACTION"
)

// CommitTimeout is the maximum time to wait for the response to COMMIT or ROLLBACK, even after the context is canceled.
// It prevents an unresponsive database from blocking a shutdown.
const CommitTimeout = 5 * time.Second

// ErrUnknown is returned if the result of a commit is unknown. The caller must allow for both results.
var ErrUnknown = errors.New("result of the commit is unknown (the database does not respond)")

// Tx is an open transaction. Its statements use the syntax of DB.
type Tx struct {
	db   *DB
	ctx  context.Context
	conn *sql.Conn
}

// Exec runs a statement, and returns the number of changed rows.
func (t *Tx) Exec(query string, args ...any) (changed int64, err error) {
	query, args = t.db.Bind(query, args...)
	result, err := t.conn.ExecContext(t.ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ExecEach runs a statement once for each row of arguments.
func (t *Tx) ExecEach(query string, rows [][]any) error {
	statement, err := t.conn.PrepareContext(t.ctx, t.db.sql(query))
	if err != nil {
		return err
	}
	defer statement.Close()
	for _, row := range rows {
		if _, err := statement.ExecContext(t.ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

// Row queries one row.
func (t *Tx) Row(query string, args ...any) *sql.Row {
	query, args = t.db.Bind(query, args...)
	return t.conn.QueryRowContext(t.ctx, query, args...)
}

// Rows queries any number of rows.
func (t *Tx) Rows(query string, args ...any) Rows {
	query, args = t.db.Bind(query, args...)
	return rowsOf(func() (*sql.Rows, error) { return t.conn.QueryContext(t.ctx, query, args...) })
}

// transaction runs f in a transaction on one connection. The statements in begin start the transaction; starting is
// their context. After the commit, check runs while the connection is still open.
func transaction(starting context.Context, db *sql.DB, begin []string, f func(*sql.Conn) error, check func() error) error {
	conn, err := db.Conn(starting)
	if err != nil {
		return err
	}
	defer conn.Close()
	open := true
	defer func() {
		if open && end(starting, conn, "ROLLBACK") != nil { // also after a panic
			drop(conn)
		}
	}()
	for _, s := range begin {
		if deadline, ok := starting.Deadline(); ok && s == Wait {
			s = fmt.Sprintf("%s = %d", Wait, max(100, time.Until(deadline).Milliseconds()))
		}
		if _, err := conn.ExecContext(starting, s); err != nil {
			return err
		}
	}
	if err := f(conn); err != nil {
		return err
	}
	err = end(starting, conn, "COMMIT")
	if errors.Is(err, ErrUnknown) {
		drop(conn)
	}
	open = err != nil && !errors.Is(err, ErrUnknown)
	if err != nil {
		return err
	}
	return check()
}

func end(ctx context.Context, conn *sql.Conn, how string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CommitTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, how)
	if err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrBadConn)) {
		return fmt.Errorf("%s: %w: %w", how, ErrUnknown, err)
	}
	return err
}

// drop closes a connection whose state is unknown, so that the connection does not return to the pool. The database
// then rolls back an open transaction.
func drop(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
