package sqlkit_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
)

func TestTimeRoundTrip(t *testing.T) {
	if !sqlkit.TimeOf(sqlkit.Millis(time.Time{})).IsZero() {
		t.Error("zero time is not zero after conversion")
	}
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-6e13, 2.5e14).Filter(func(n int64) bool { return n != 0 }).Draw(t, "ms")
		want := time.UnixMilli(ms)
		if got := sqlkit.TimeOf(sqlkit.Millis(want)); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("time %s: got %s after conversion", want, got)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		got := sqlkit.TimeOf(sqlkit.Millis(hostile.Time.Draw(t, "time")))
		if _, err := got.MarshalJSON(); err != nil {
			t.Errorf("time %s: %v", got, err)
		}
	})
}

// A Scanner replaces the whole old value, because all rows are scanned into the same variables.
func TestScanReplacesOldValue(t *testing.T) {
	values, text, at := map[string]int{"before": 1}, "before", time.Now()
	for _, c := range []struct {
		to     sql.Scanner
		stored any
	}{
		{sqlkit.JSON(&values), []byte(`{"after": 2}`)},
		{sqlkit.Text(&text), nil},
		{sqlkit.Time(&at), int64(0)},
	} {
		if err := c.to.Scan(c.stored); err != nil {
			t.Fatal(err)
		}
	}
	if len(values) != 1 || values["after"] != 2 || text != "" || !at.IsZero() {
		t.Errorf("got %v, %q, %s, want only the values of the last row", values, text, at)
	}
	if sqlkit.JSON(&values).Scan("not JSON") == nil {
		t.Error("Scan accepts invalid JSON")
	}
}

// A value that has no JSON encoding makes the statement fail.
func TestAsJSONReturnsEncodingError(t *testing.T) {
	if text, err := sqlkit.AsJSON([]int{1, 2}).Value(); err != nil || text != "[1,2]" {
		t.Errorf("list: got %v, %v, want [1,2]", text, err)
	}
	if _, err := sqlkit.AsJSON(func() {}).Value(); err == nil {
		t.Error("function: got no error")
	}
}

// restartedDB is a database that has restarted: the idle connections of the pool fail, and new connections work.
type restartedDB struct{ epoch int }

func (d *restartedDB) Connect(context.Context) (driver.Conn, error) {
	return &restartedConn{db: d, epoch: d.epoch}, nil
}
func (*restartedDB) Driver() driver.Driver { return nil }

type restartedConn struct {
	db    *restartedDB
	epoch int
}

func (*restartedConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (*restartedConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (*restartedConn) Close() error                        { return nil }

func (c *restartedConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if c.epoch < c.db.epoch {
		return nil, driver.ErrBadConn
	}
	return noRows{}, nil
}

type noRows struct{}

func (noRows) Columns() []string         { return []string{"n"} }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// A query does not fail because the database has restarted since the pool last used a connection.
func TestRowsUseNewConnectionAfterRestart(t *testing.T) {
	d := &restartedDB{}
	pool := sql.OpenDB(d)
	defer pool.Close()
	db := sqlkit.New(pool, sqlkit.PostgreSQL, "t_")
	for range 3 {
		for _, err := range db.Rows(t.Context(), "SELECT n FROM {t}") {
			t.Errorf("after %d restarts: %v", d.epoch, err)
		}
		d.epoch++
	}
}
