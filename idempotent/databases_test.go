package idempotent_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// timeout limits the wait for expected events. No test depends on a short timeout.
const timeout = 2 * time.Minute

// database is an empty database for one test.
type database struct {
	*sql.DB
	dialect        idempotent.Dialect
	driver, source string // arguments of sql.Open
}

// eachDatabase runs test for each kind of database. It skips a subtest if no server is configured. `make
// test` provides the servers, and treats a skipped test as a failure.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, openPostgres(t)) })
	t.Run("mariadb", func(t *testing.T) {
		test(t, open(t, database{dialect: idempotent.MySQL, driver: "mysql", source: testkit.MariaDB(t)}))
	})
}

func openSQLite(t testing.TB) database {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.db")
	source := "file:" + file + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	return open(t, database{dialect: idempotent.SQLite, driver: "sqlite", source: source})
}

func openPostgres(t testing.TB) database {
	t.Helper()
	return open(t, database{dialect: idempotent.PostgreSQL, driver: "pgx", source: pgtest.Schema(t)})
}

func open(t testing.TB, d database) database {
	t.Helper()
	db, err := sql.Open(d.driver, d.source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	d.DB = db
	return d
}

func (d database) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := d.Exec(statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d database) count(t testing.TB, from string) (n int) {
	t.Helper()
	if err := d.QueryRow("SELECT count(*) FROM " + from).Scan(&n); err != nil {
		t.Fatalf("cannot count rows of %s: %v", from, err)
	}
	return n
}

// store returns a store in the database and creates its table.
func (d database) store(t testing.TB, options ...func(*idempotent.SQLConfig)) *idempotent.SQL {
	t.Helper()
	cfg := idempotent.SQLConfig{Dialect: d.dialect}
	for _, o := range options {
		o(&cfg)
	}
	s, err := idempotent.OpenSQL(context.Background(), d.DB, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
