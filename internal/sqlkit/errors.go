package sqlkit

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// ErrUnavailable is returned if the database is currently not available. For example, it does not respond in time, is
// unreachable, refuses writes, or was removed. The same call may succeed later.
var ErrUnavailable = errors.New("database not available")

// ErrGone is returned if the database is no longer the database that was opened, because its file was deleted, replaced
// or emptied, or its tables were dropped. It also matches ErrUnavailable.
var ErrGone error = gone("database no longer available")

type gone string

func (e gone) Error() string { return string(e) }

func (e gone) Is(target error) bool { return target == ErrGone || target == ErrUnavailable }

// Gone returns an error that matches ErrGone, with the given message.
func Gone(text string) error { return gone(text) }

// explain returns an error that matches ErrUnavailable or ErrGone if err has one of these meanings, and otherwise err.
func explain(err error, begun time.Time) error {
	switch {
	case err == nil, errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, ErrUnknown):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: timed out after %s: %w", ErrUnavailable, time.Since(begun).Round(100*time.Millisecond), context.DeadlineExceeded)
	case isUnavailable(err):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if state := sqlState(err); state == "42P01" || state == "3F000" { // undefined_table, invalid_schema_name
		return missing{err}
	}
	return err
}

// missing is the error of the database for a missing table or schema. It matches ErrGone.
type missing struct{ cause error }

func (e missing) Error() string {
	return fmt.Sprintf("tables are missing: was the schema dropped? (restore it, or restart this process to begin with empty tables): %v", e.cause)
}

func (e missing) Is(target error) bool { return gone("").Is(target) }

// Missing returns the error of the database if err means that a table or a schema is missing in PostgreSQL, and otherwise nil.
func Missing(err error) error {
	if e, ok := errors.AsType[missing](err); ok {
		return e.cause
	}
	return nil
}

// sqlState returns the SQLSTATE of a PostgreSQL error, or "".
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

func isUnavailable(err error) bool {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if state := sqlState(err); state != "" {
		// connection exceptions, insufficient resources, operator intervention (including statement timeouts),
		// read-only
		return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57") || state == "25006"
	}
	switch sqliteCode(err) { // https://www.sqlite.org/rescode.html
	case 5, 6, 8, 10, 11, 13, 14, 26: // busy, locked, read-only, I/O, corrupt, full, cannot open, not a database
		return true
	}
	return false
}

// isBusy reports whether SQLite refused a statement because of another connection.
func isBusy(err error) bool {
	code := sqliteCode(err)
	return code == 5 || code == 6
}

// sqliteCode returns the primary result code of an SQLite error, or 0.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
