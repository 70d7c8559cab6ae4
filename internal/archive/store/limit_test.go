package store

import (
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// The time limit of a change includes the wait for another change and the wait for the database.
func TestChangeTimeoutIncludesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		a, err := Open(t.Context(), db, Config{Dialect: SQLite})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		a.writing <- struct{}{}
		go func() {
			time.Sleep(sqlkit.WriteLimit - time.Second)
			busy, err := db.Conn(t.Context()) // occupies the only connection
			if err != nil {
				t.Error(err)
				return
			}
			<-a.writing
			time.Sleep(sqlkit.WriteLimit - time.Second)
			if err := busy.Close(); err != nil {
				t.Error(err)
			}
		}()
		_, err = a.AddDelivered(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}})
		if took := time.Since(begun); !errors.Is(err, ErrUnavailable) || took > sqlkit.WriteLimit {
			t.Errorf("got %v after %s, want ErrUnavailable within %s", err, took, sqlkit.WriteLimit)
		}
		time.Sleep(sqlkit.WriteLimit)
	})
}
