package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

func TestOpenPreservesMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		p := prefix(db.next())
		ids := value(db.open(t, p).Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}}))(t)
		m := value(db.open(t, p).Get(t.Context(), ids[0]))(t)
		if m.Queue != "q" {
			t.Errorf("second Open: got queue %q, want q", m.Queue)
		}
		if _, err := db.archive(t).Get(t.Context(), ids[0]); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("archive with another prefix: got error %v, want ErrNotFound", err)
		}
	})
}

func TestConcurrentOpen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		p := db.next()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				a, err := store.Open(t.Context(), db.DB, store.Config{Dialect: db.dialect, Prefix: p})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := value(db.open(t, prefix(p)).Count(t.Context(), failed.Filter{}))(t); n.N != 8 {
			t.Errorf("got %d messages, want 8", n.N)
		}
	})
}

// Open refuses the tables of another version, older or newer, says how to keep the messages, and changes nothing.
func TestOpenRefusesOtherVersion(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		ids := value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}}))(t)
		p := a.Config().Prefix
		var version string
		check(t, db.QueryRow(`SELECT value FROM `+p+`about WHERE name = 'version'`).Scan(&version))
		for _, other := range []string{"1", "999"} {
			db.exec(t, `UPDATE `+p+`about SET value = '`+other+`' WHERE name = 'version'`)
			_, err := store.Open(t.Context(), db.DB, a.Config())
			for _, says := range []string{"got " + other, "`reprise failed export`", "`reprise failed import`"} {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("version %s: got error %v, want %q", other, err, says)
				}
			}
		}
		db.exec(t, `UPDATE `+p+`about SET value = '`+version+`' WHERE name = 'version'`)
		if m := value(value(store.Open(t.Context(), db.DB, a.Config()))(t).Get(t.Context(), ids[0]))(t); m.Queue != "q" {
			t.Errorf("after the refusals: got message %+v, want queue q", m)
		}
	})
}

func TestOpenRefusesInvalidConfig(t *testing.T) {
	db := openSQLite(t)
	for _, c := range []struct {
		cfg  store.Config
		says string
	}{
		{store.Config{Dialect: store.SQLite, Redact: []failed.Rule{{}}}, "must have either a Header or a Path"},
	} {
		_, err := store.Open(t.Context(), db.DB, c.cfg)
		if err == nil || !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got error %v, want %q", c.cfg, err, c.says)
		}
	}
}

// A canceled writer does not change anything and does not block others.
func TestCancelledWriterDoesNotBlockOthers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		one := []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed"}}}
		if _, err := a.Ingest(ctx, one); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled Ingest: got error %v, want context.Canceled", err)
		}
		value(a.Ingest(t.Context(), one))(t)
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 1 {
			t.Errorf("got %d messages, want 1", n.N)
		}
	})
}
