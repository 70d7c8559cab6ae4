package sqlkit

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
)

// Errors of a PostgreSQL server are permanent, unless the server is starting or has too many connections.
func TestUnreachable(t *testing.T) {
	wrapped := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for code, want := range map[string]bool{"57P03": true, "53300": true, "28P01": false, "3D000": false, "42501": false} {
		if unreachable(wrapped(code)) != want {
			t.Errorf("unreachable for code %s: got %t", code, !want)
		}
	}
	if unreachable(errors.New("file is not a database")) {
		t.Error("invalid file counts as unreachable")
	}
	x, err := sql.Open("pgx", "postgres://u:hush@127.0.0.1:1/d")
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.PingContext(t.Context()); !unreachable(err) {
		t.Errorf("refused connection does not count as unreachable: %v", err)
	}
}
