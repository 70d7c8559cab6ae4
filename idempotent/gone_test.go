package idempotent_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// While the file of the store is missing, a handler does not run and no key counts as done. SQLite loses writes to a
// deleted file when the process exits.
func TestSQLDetectsDeletedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	db := open(t, database{dialect: idempotent.SQLite, driver: "sqlite", source: "file:" + path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"})
	store := db.store(t)
	move := func(from, to string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Rename(from+suffix, to+suffix); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantDeleted := func(call string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), path+" was deleted or moved") {
			t.Errorf("%s: got error %v, want one about the deleted file", call, err)
		}
	}
	claim := func() error {
		_, err := store.Claim(t.Context(), "key", "token", time.Minute)
		return err
	}
	if err := errors.Join(claim(), store.Healthy(t.Context())); err != nil {
		t.Fatal(err)
	}
	ran := 0
	book := db.bookings(t)
	h := transaction(t, store, idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		if ran++; ran == 1 { // during the run of the handler
			move(path, filepath.Join(dir, "away.db"))
		}
		return book(ctx, tx, m)
	})
	wantDeleted("a transaction", h.Handle(t.Context(), message()))
	wantDeleted("the next", h.Handle(t.Context(), message()))
	wantDeleted("a claim", claim())
	wantDeleted("done", store.Complete(t.Context(), "key", "token", time.Hour))
	wantDeleted("healthy", store.Healthy(t.Context()))
	if ran != 1 {
		t.Errorf("handler ran %d times, want 1", ran)
	}
	move(filepath.Join(dir, "away.db"), path)
	if err := errors.Join(store.Healthy(t.Context()), store.Complete(t.Context(), "key", "token", time.Hour), h.Handle(t.Context(), message())); err != nil {
		t.Error(err)
	}
	if n := db.count(t, "bookings"); n != 1 {
		t.Errorf("got %d effects, want 1", n)
	}
}

// A PostgreSQL server that does not respond causes an error.
func TestHealthyTimesOutOnUnresponsivePostgres(t *testing.T) {
	proxy := pgtest.NewProxy(t, pgtest.Schema(t))
	store := open(t, database{dialect: idempotent.PostgreSQL, driver: "pgx", source: proxy.URL}).store(t)
	proxy.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := store.Healthy(ctx); err == nil || !strings.Contains(err.Error(), "timed out after ") {
		t.Errorf("Healthy: got error %v, want a timeout", err)
	}
	proxy.Resume()
	if err := store.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
}
