package sqlkit

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// What a transaction begins with that writes in SQLite: it waits for its turn at once, for
// as long as the connection has it wait, which Wait sets to the time that the context has left,
// since SQLite does not notice its end meanwhile. One that reads first and writes
// then is refused without waiting where another writes, since one of the two has to give way.
const (
	Wait      = "PRAGMA busy_timeout"
	Immediate = "BEGIN IMMEDIATE"
)

// Begin begins a transaction in PostgreSQL, with the time limit of WriteLimit: a server whose client is cut off would keep the locks of the
// transaction until the network notices, which can take hours. Longer is for a transaction
// that Long is for.
const (
	Begin  = "BEGIN; SET LOCAL statement_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '20s'"
	Longer = "SET LOCAL statement_timeout = '5min'"
)

// Patience is for how long the answer to COMMIT or ROLLBACK is waited for, whatever has
// become of the context: a database that hangs is not to hold up whoever wants to end.
const Patience = 5 * time.Second

// ErrUnknown says that nobody knows whether a transaction was committed: it is to be
// taken for both.
var ErrUnknown = errors.New("the database does not answer, and may have committed it or not")

// Tx is a transaction that is under way. Its statements are written as those of DB, and their
// rows are of the transaction.
type Tx struct {
	db   *DB
	ctx  context.Context
	conn *sql.Conn
}

// Exec runs a statement, and returns the number of rows that it has changed.
func (t *Tx) Exec(query string, args ...any) (changed int64, err error) {
	result, err := t.conn.ExecContext(t.ctx, t.db.sql(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// ExecEach runs a statement with the arguments of each row.
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
	return t.conn.QueryRowContext(t.ctx, t.db.sql(query), args...)
}

// Rows queries any number of rows.
func (t *Tx) Rows(query string, args ...any) Rows {
	return rowsOf(func() (*sql.Rows, error) { return t.conn.QueryContext(t.ctx, t.db.sql(query), args...) })
}

// transaction runs f on a connection, in a transaction that the statements of begin begin
// within starting, and check on the same connection when it is committed.
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Patience)
	defer cancel()
	_, err := conn.ExecContext(ctx, how)
	if err != nil && (ctx.Err() != nil || errors.Is(err, driver.ErrBadConn)) {
		return fmt.Errorf("%s: %w: %w", how, ErrUnknown, err)
	}
	return err
}

// drop closes a connection that nobody knows the state of, rather than that another gets
// it: what is open on it the database rolls back.
func drop(conn *sql.Conn) { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }
