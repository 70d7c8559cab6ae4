// Package pgtest gives tests access to a PostgreSQL server. It is separate from testkit, so that tests without a
// database do not link a driver.
package pgtest

import (
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/reprisemq/reprise/internal/testkit"
)

// Server returns the URL of the PostgreSQL server for tests. It skips the test if no server is configured. `make test`
// configures a server, and treats a skipped test as a failure.
func Server(t testing.TB) string {
	t.Helper()
	address := os.Getenv("REPRISE_TEST_POSTGRES")
	if address == "" {
		t.Skip("needs PostgreSQL (set REPRISE_TEST_POSTGRES=postgres://… or run make test)")
	}
	return address
}

// Schema creates an empty schema for the test and returns its URL. Like Server, it skips the test if no server is
// configured.
func Schema(t testing.TB) string {
	t.Helper()
	address := Server(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatalf("REPRISE_TEST_POSTGRES=%q is not a URL: %v", address, err)
	}
	db, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	schema := strings.ToLower(testkit.Name(t, "reprise"))
	schema = `"` + schema[len(schema)-min(len(schema), 50):] + `"`
	exec("CREATE SCHEMA " + schema)
	t.Cleanup(func() { exec("DROP SCHEMA " + schema + " CASCADE") })
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}
