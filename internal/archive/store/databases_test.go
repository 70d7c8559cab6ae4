package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// database is an empty database for one test.
type database struct {
	*sql.DB
	dialect store.Dialect
	made    *atomic.Int64 // number of archives made so far
	source  string
}

// eachDatabase runs test once for each kind of database. It skips the PostgreSQL subtest if no server is configured.
// `make test` starts a server and treats a skipped test as a failure.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, openPostgres(t)) })
}

func openSQLite(t testing.TB) database {
	t.Helper()
	return open(t, store.SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=synchronous(OFF)")
}

func openPostgres(t testing.TB) database {
	t.Helper()
	return open(t, store.PostgreSQL, "pgx", pgtest.Schema(t))
}

func open(t testing.TB, d store.Dialect, driver, source string) database {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return database{db, d, new(atomic.Int64), source}
}

func (d database) exec(t testing.TB, statement string) {
	t.Helper()
	if _, err := d.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// archive returns an empty archive in the database.
func (d database) archive(t testing.TB, options ...func(*store.Config)) *store.Archive {
	t.Helper()
	return d.open(t, append([]func(*store.Config){prefix(d.next())}, options...)...)
}

// next returns an unused prefix.
func (d database) next() string {
	return "a" + strings.Repeat("b", int(d.made.Load()%30)) + string(rune('a'+d.made.Add(1)/30)) + "_"
}

func prefix(p string) func(*store.Config) { return func(c *store.Config) { c.Prefix = p } }

func (d database) open(t testing.TB, options ...func(*store.Config)) *store.Archive {
	t.Helper()
	cfg := store.Config{Dialect: d.dialect}
	for _, o := range options {
		o(&cfg)
	}
	a, err := store.Open(context.Background(), d.DB, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// empty removes all data of an archive. This is faster than a new archive for each run of a property test.
func (d database) empty(t rapid.TB, a *store.Archive) {
	t.Helper()
	p := a.Config().Prefix
	var all []string
	for _, table := range []string{
		"waiting_message", "waiting_queue", "queue", "group", "merged", "trend", "message", "content", "revision", "delivery", "ingest", "origin", "replay", "item", "act", "acted", "search",
	} {
		all = append(all, "DELETE FROM "+p+table)
	}
	all = append(all, "UPDATE "+p+"counter SET last = 0 WHERE name <> 'commit'")
	if _, err := d.Exec(strings.Join(all, "; ")); err != nil {
		t.Fatalf("emptying the archive: %v", err)
	}
}

// numbers returns SQL for a table n whose column g contains the numbers 1 to n.
func (d database) numbers(n int) string {
	if d.dialect == store.SQLite {
		return fmt.Sprintf(`(WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < %d) SELECT g FROM n) n`, n)
	}
	return fmt.Sprintf(`generate_series(1, %d) AS n(g)`, n)
}

// bytes returns the SQL type of byte strings.
func (d database) bytes() string {
	return map[store.Dialect]string{store.SQLite: "BLOB", store.PostgreSQL: "BYTEA"}[d.dialect]
}

// clock is a clock that only the test advances.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time       { return time.UnixMilli(c.at.Load()).UTC() }
func (c *clock) pass(d time.Duration) { c.at.Add(d.Milliseconds()) }
func (c *clock) use(cfg *store.Config) {
	cfg.Clock = c.now
}

func check(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a function that returns v, or fails the test if err is not nil.
func value[V any](v V, err error) func(t rapid.TB) V {
	return func(t rapid.TB) V {
		t.Helper()
		check(t, err)
		return v
	}
}
