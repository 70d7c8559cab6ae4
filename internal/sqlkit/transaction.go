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
// as long as the connection has it wait, which Wait sets. One that reads first and writes
// then is refused without waiting where another writes, since one of the two has to give way.
const (
	Wait      = "PRAGMA busy_timeout = 30000"
	Immediate = "BEGIN IMMEDIATE"
)

// Patience is for how long the answer to COMMIT or ROLLBACK is waited for, whatever has
// become of the context: a database that hangs is not to hold up whoever wants to end.
const Patience = 5 * time.Second

// ErrUnknown says that nobody knows whether a transaction was committed: it is to be
// taken for both.
var ErrUnknown = errors.New("the database does not answer, and may have committed it or not")

// Transaction runs f on a connection, in a transaction that the statements of begin begin.
// It is committed if f returns nil. If ctx ends in the middle of that, what has become
// of it is waited for nevertheless: for Patience, and then it is ErrUnknown.
func Transaction(ctx context.Context, db *sql.DB, begin []string, f func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	open := true
	defer func() {
		if open && end(ctx, conn, "ROLLBACK") != nil { // also after a panic
			drop(conn)
		}
	}()
	for _, s := range begin {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	if err := f(conn); err != nil {
		return err
	}
	err = end(ctx, conn, "COMMIT")
	if errors.Is(err, ErrUnknown) {
		drop(conn)
	}
	open = err != nil && !errors.Is(err, ErrUnknown)
	return err
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

// WriteAhead has SQLite write ahead: a property of the file, by which readers and a writer
// are not in each other's way. Who finds that another is about to do the same is refused
// at once, whatever the connection's busy_timeout, also where the connection's address
// says it, so that it is tried again, for some seconds.
func WriteAhead(ctx context.Context, db *sql.DB) (err error) {
	for pause := time.Millisecond; pause < 4*time.Second; pause *= 2 {
		if _, err = db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
	return err
}
