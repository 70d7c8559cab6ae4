package sqlkit_test

import (
	"database/sql"
	"testing"

	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// The server aborts the transaction of a client whose network connection fails. Otherwise other clients could wait for
// its locks until the network reports the failure.
func TestServerAbortsAbandonedTransaction(t *testing.T) {
	pool, err := sql.Open("pgx", pgtest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(setting, want string) {
		t.Helper()
		var got string
		if err := conn.QueryRowContext(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("setting %s: got %q, want %q (%v)", setting, got, want, err)
		}
	}
	exec(sqlkit.Begin)
	expect("statement_timeout", sqlkit.WriteLimit.String())
	expect("idle_in_transaction_session_timeout", sqlkit.WriteLimit.String())
	exec(sqlkit.Longer)
	expect("statement_timeout", "5min")
	exec("COMMIT")
	expect("statement_timeout", "0")
}
