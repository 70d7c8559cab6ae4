package sqlkit_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// hangingDB is a database that does not respond to one statement.
type hangingDB struct {
	to     string
	log    []string
	closed atomic.Int64
}

func (m *hangingDB) Connect(context.Context) (driver.Conn, error) { return &hangingConn{m}, nil }
func (m *hangingDB) Driver() driver.Driver                        { return nil }

type hangingConn struct{ *hangingDB }

func (c *hangingConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *hangingConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *hangingConn) Close() error                        { c.closed.Add(1); return nil }

func (c *hangingConn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.log = append(c.log, query)
	if query == c.to {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return driver.ResultNoRows, ctx.Err()
}

func (c *hangingConn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	_, err := c.ExecContext(ctx, query, nil)
	return nil, err
}

// A database that does not respond cannot block a caller indefinitely, and a connection with an unknown state does not
// return to the pool.
func TestTransactionEndHasTimeout(t *testing.T) {
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		hangs string
		does  error
		want  error
		log   []string
	}{
		"commit":   {"COMMIT", nil, sqlkit.ErrUnknown, []string{"BEGIN", "COMMIT"}},
		"rollback": {"ROLLBACK", wrong, wrong, []string{"BEGIN", "ROLLBACK"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &hangingDB{to: c.hangs}
				db := sql.OpenDB(m)
				defer db.Close()
				ctx, cancel := context.WithCancel(t.Context())
				begun := time.Now()
				err := sqlkit.New(db, sqlkit.PostgreSQL, "").Transaction(ctx, []string{"BEGIN"}, func(*sqlkit.Tx) error {
					cancel()
					return c.does
				})
				if !errors.Is(err, c.want) {
					t.Errorf("Transaction: got error %v, want %v", err, c.want)
				}
				if took := time.Since(begun); took != sqlkit.CommitTimeout {
					t.Errorf("Transaction took %s, want %s", took, sqlkit.CommitTimeout)
				}
				if !slices.Equal(m.log, c.log) {
					t.Errorf("got statements %q, want %q", m.log, c.log)
				}
				if m.closed.Load() != 1 {
					t.Error("connection was not closed")
				}
			})
		})
	}
}

// A caller whose context is canceled during the commit receives the result.
func TestCancelledTransactionReturnsCommitResult(t *testing.T) {
	m := &hangingDB{}
	db := sql.OpenDB(m)
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	err := sqlkit.New(db, sqlkit.PostgreSQL, "").Transaction(ctx, []string{"BEGIN"}, func(*sqlkit.Tx) error { cancel(); return nil })
	if err != nil || !slices.Equal(m.log, []string{"BEGIN", "COMMIT"}) || m.closed.Load() != 0 {
		t.Errorf("Transaction: got error %v and statements %q, want BEGIN, COMMIT", err, m.log)
	}
}

// If the database does not respond, statements of all kinds fail after their time limit.
func TestQueriesHaveTimeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		hangs string
		limit time.Duration
		does  func(ctx context.Context, db *sqlkit.DB) error
	}{
		"Exec": {"INSERT", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			_, err := db.Exec(ctx, "INSERT")
			return err
		}},
		"Row": {"SELECT", sqlkit.ReadLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Row(ctx, "SELECT").Scan(new(int))
		}},
		"Rows": {"SELECT", sqlkit.ReadLimit, func(ctx context.Context, db *sqlkit.DB) error {
			for err := range db.Rows(ctx, "SELECT").Scan() {
				return err
			}
			return nil
		}},
		"begin": {"BEGIN", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(sqlkit.Long(ctx), []string{"BEGIN"}, func(*sqlkit.Tx) error { return nil })
		}},
		"transaction": {"UPDATE", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(ctx, []string{"BEGIN"}, func(tx *sqlkit.Tx) error {
				_, err := tx.Exec("UPDATE")
				return err
			})
		}},
		"long transaction": {"UPDATE", sqlkit.LongLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(sqlkit.Long(ctx), []string{"BEGIN"}, func(tx *sqlkit.Tx) error {
				_, err := tx.Exec("UPDATE")
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := sql.OpenDB(&hangingDB{to: c.hangs})
				defer pool.Close()
				begun := time.Now()
				err := c.does(t.Context(), sqlkit.New(pool, sqlkit.PostgreSQL, ""))
				if !errors.Is(err, sqlkit.ErrUnavailable) || !strings.Contains(err.Error(), "timed out after "+c.limit.String()) {
					t.Errorf("got error %v, want ErrUnavailable", err)
				}
				if took := time.Since(begun); took != c.limit {
					t.Errorf("got %s, want %s", took, c.limit)
				}
			})
		})
	}
}
