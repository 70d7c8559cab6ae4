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

// mute is a database that does not answer one statement.
type mute struct {
	to     string
	log    []string
	closed atomic.Int64
}

func (m *mute) Connect(context.Context) (driver.Conn, error) { return &muteConn{m}, nil }
func (m *mute) Driver() driver.Driver                        { return nil }

type muteConn struct{ *mute }

func (c *muteConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *muteConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *muteConn) Close() error                        { c.closed.Add(1); return nil }

func (c *muteConn) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	c.log = append(c.log, query)
	if query == c.to {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return driver.ResultNoRows, ctx.Err()
}

func (c *muteConn) QueryContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	_, err := c.ExecContext(ctx, query, nil)
	return nil, err
}

// A database that does not respond cannot block a caller indefinitely, and a connection with an unknown state does not
// return to the pool.
func TestTheEndOfATransactionIsNotWaitedForForEver(t *testing.T) {
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		mute string
		does error
		want error
		log  []string
	}{
		"commit":   {"COMMIT", nil, sqlkit.ErrUnknown, []string{"BEGIN", "COMMIT"}},
		"rollback": {"ROLLBACK", wrong, wrong, []string{"BEGIN", "ROLLBACK"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mute{to: c.mute}
				db := sql.OpenDB(m)
				defer db.Close()
				ctx, cancel := context.WithCancel(t.Context())
				begun := time.Now()
				err := sqlkit.New(db, sqlkit.PostgreSQL, "").Transaction(ctx, []string{"BEGIN"}, func(*sqlkit.Tx) error {
					cancel()
					return c.does
				})
				if !errors.Is(err, c.want) {
					t.Errorf("it ended with %v, want %v", err, c.want)
				}
				if took := time.Since(begun); took != sqlkit.CommitTimeout {
					t.Errorf("it took %s", took)
				}
				if !slices.Equal(m.log, c.log) {
					t.Errorf("it was told %q", m.log)
				}
				if m.closed.Load() != 1 {
					t.Error("the connection is used again")
				}
			})
		})
	}
}

// A caller whose context is canceled during the commit learns the result.
func TestACancelledTransactionIsCommittedOrNot(t *testing.T) {
	m := &mute{}
	db := sql.OpenDB(m)
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	err := sqlkit.New(db, sqlkit.PostgreSQL, "").Transaction(ctx, []string{"BEGIN"}, func(*sqlkit.Tx) error { cancel(); return nil })
	if err != nil || !slices.Equal(m.log, []string{"BEGIN", "COMMIT"}) || m.closed.Load() != 0 {
		t.Errorf("%v: it was told %q", err, m.log)
	}
}

// A query of a database that does not respond fails in time, for every kind of statement.
func TestADatabaseThatHangsIsGivenUpOn(t *testing.T) {
	for name, c := range map[string]struct {
		mute  string
		limit time.Duration
		does  func(ctx context.Context, db *sqlkit.DB) error
	}{
		"a statement": {"INSERT", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			_, err := db.Exec(ctx, "INSERT")
			return err
		}},
		"a query": {"SELECT", sqlkit.ReadLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Row(ctx, "SELECT").Scan(new(int))
		}},
		"rows": {"SELECT", sqlkit.ReadLimit, func(ctx context.Context, db *sqlkit.DB) error {
			for err := range db.Rows(ctx, "SELECT").Scan() {
				return err
			}
			return nil
		}},
		"the beginning": {"BEGIN", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(sqlkit.Long(ctx), []string{"BEGIN"}, func(*sqlkit.Tx) error { return nil })
		}},
		"within": {"UPDATE", sqlkit.WriteLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(ctx, []string{"BEGIN"}, func(tx *sqlkit.Tx) error {
				_, err := tx.Exec("UPDATE")
				return err
			})
		}},
		"within a long one": {"UPDATE", sqlkit.LongLimit, func(ctx context.Context, db *sqlkit.DB) error {
			return db.Transaction(sqlkit.Long(ctx), []string{"BEGIN"}, func(tx *sqlkit.Tx) error {
				_, err := tx.Exec("UPDATE")
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := sql.OpenDB(&mute{to: c.mute})
				defer pool.Close()
				begun := time.Now()
				err := c.does(t.Context(), sqlkit.New(pool, sqlkit.PostgreSQL, ""))
				if !errors.Is(err, sqlkit.ErrUnavailable) || !strings.Contains(err.Error(), "no answer within "+c.limit.String()) {
					t.Errorf("%v", err)
				}
				if took := time.Since(begun); took != c.limit {
					t.Errorf("it took %s, want %s", took, c.limit)
				}
			})
		})
	}
}
