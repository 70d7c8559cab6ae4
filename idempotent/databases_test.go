package idempotent_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long tests wait for what must happen. None depends on it being
// short.
const patience = 30 * time.Second

// database is an empty one, of a test's own.
type database struct {
	*sql.DB
	dialect        idempotent.Dialect
	driver, source string // to open it once more
}

// eachDatabase runs test once for each kind of database. The subtest of PostgreSQL
// is skipped if there is none; `make test` sees to it that there is, and takes a
// skipped test for a failure.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, openPostgres(t)) })
}

func openSQLite(t testing.TB) database {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.db")
	source := "file:" + file + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	return open(t, database{dialect: idempotent.SQLite, driver: "sqlite", source: source})
}

func openPostgres(t testing.TB) database {
	t.Helper()
	const variable = "REPRISE_TEST_POSTGRES"
	address := os.Getenv(variable)
	if address == "" {
		t.Skipf("needs PostgreSQL: set %s=postgres://… or run make test", variable)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("%s=%q is no URL: %v", variable, address, err)
	}
	all := open(t, database{driver: "pgx", source: address})
	// A schema of its own, which the name of a table then stands for.
	schema := strings.ToLower(testkit.Name(t, "reprise"))
	schema = schema[len(schema)-min(len(schema), 50):]
	all.exec(t, `CREATE SCHEMA "`+schema+`"`)
	t.Cleanup(func() { all.exec(t, `DROP SCHEMA "`+schema+`" CASCADE`) })
	q := u.Query()
	q.Set("search_path", `"`+schema+`"`)
	u.RawQuery = q.Encode()
	return open(t, database{dialect: idempotent.PostgreSQL, driver: "pgx", source: u.String()})
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
		t.Fatalf("counting %s: %v", from, err)
	}
	return n
}

// store returns a store in the database, with its table.
func (d database) store(t testing.TB, options ...func(*idempotent.SQLConfig)) *idempotent.SQL {
	t.Helper()
	cfg := idempotent.SQLConfig{Dialect: d.dialect}
	for _, o := range options {
		o(&cfg)
	}
	s, err := idempotent.NewSQL(d.DB, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}
