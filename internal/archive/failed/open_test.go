package failed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Open migrates an archive of an older version without loss of data.
func TestOpenMigratesOlderVersion(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		p := db.next()
		value(db.open(t, prefix(p)).Ingest(t.Context(), []failed.Arrival{{Message: failed.Message{FailedQueue: "orders.failed"}}}))(t)
		for _, s := range []string{
			`DROP TABLE %smerged`, `ALTER TABLE %sgroup DROP COLUMN regrouped`, `DROP TABLE %sacted`, `DROP TABLE %ssubmission`, `DROP INDEX %sreplay_ended`, `CREATE INDEX %[1]sreplay_running ON %[1]sreplay (id) WHERE ended = 0`, `ALTER TABLE %sreplay DROP COLUMN settled`, `ALTER TABLE %sgroup DROP COLUMN muted`,
			`ALTER TABLE %sreplay DROP COLUMN edit`, `ALTER TABLE %sitem DROP COLUMN base`, `ALTER TABLE %srevision DROP COLUMN replay`,
			`DROP INDEX %sitem_outcome`, `ALTER TABLE %sitem DROP COLUMN outcome`, `ALTER TABLE %sitem DROP COLUMN unasked`, `DROP TABLE %sreporting`,
			`ALTER TABLE %sreplay DROP COLUMN secret`, `ALTER TABLE %sreplay DROP COLUMN pending`, `ALTER TABLE %sreplay DROP COLUMN retrying`, `ALTER TABLE %sreplay DROP COLUMN succeeded`, `ALTER TABLE %sreplay DROP COLUMN retried`,
			`DROP INDEX %sitem_refused`, `ALTER TABLE %sitem DROP COLUMN refused`, `ALTER TABLE %smessage DROP COLUMN refused`, `ALTER TABLE %sreplay DROP COLUMN refused`, `DROP TABLE %singest`, `DELETE FROM %scounter WHERE name = 'commit'`, `UPDATE %sabout SET value = '1' WHERE name = 'version'`,
		} {
			db.exec(t, fmt.Sprintf(s, p))
		}
		a := db.open(t, prefix(p))
		r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me"))(t)
		check(t, a.Refuse(t.Context(), r.ID, []failed.Refusal{{ID: 1, Why: "too large"}}))
		if m := value(a.Get(t.Context(), 1))(t); m.Queue != "orders" || m.Refused != "too large" {
			t.Errorf("got message %+v, want queue orders, refused \"too large\"", m)
		}
	})
}

func TestOpenPreservesMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		p := prefix(db.next())
		ids := value(db.open(t, p).Ingest(t.Context(), []failed.Arrival{{Message: failed.Message{FailedQueue: "q.failed"}}}))(t)
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
				a, err := failed.Open(t.Context(), db.DB, failed.Config{Dialect: db.dialect, Prefix: p})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := a.Ingest(t.Context(), []failed.Arrival{{Message: failed.Message{FailedQueue: "q.failed"}}}); err != nil {
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

func TestOpenRefusesNewerVersion(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		p := a.Config().Prefix
		db.exec(t, `UPDATE `+p+`about SET value = '999' WHERE name = 'version'`)
		_, err := failed.Open(t.Context(), db.DB, a.Config())
		if err == nil || !strings.Contains(err.Error(), "use a newer program") {
			t.Errorf("version 999: got error %v, want \"use a newer program\"", err)
		}
	})
}

func TestOpenRefusesInvalidConfig(t *testing.T) {
	db := openSQLite(t)
	for _, c := range []struct {
		cfg  failed.Config
		says string
	}{
		{failed.Config{}, "use PostgreSQL or SQLite"},
		{failed.Config{Dialect: failed.SQLite, Prefix: "a; DROP"}, "at most 40 lowercase letters"},
		{failed.Config{Dialect: failed.SQLite, Retention: -time.Hour}, "must not be negative"},
		{failed.Config{Dialect: failed.SQLite, Redact: []failed.Rule{{}}}, "must have either a Header or a Path"},
	} {
		_, err := failed.Open(t.Context(), db.DB, c.cfg)
		if err == nil || !errors.Is(err, failed.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got error %v, want %q", c.cfg, err, c.says)
		}
	}
	if _, err := failed.Open(t.Context(), nil, failed.Config{Dialect: failed.SQLite}); err == nil {
		t.Error("Open accepts a nil database")
	}
}

// A canceled writer does not change anything and does not block others.
func TestCancelledWriterDoesNotBlockOthers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		one := []failed.Arrival{{Message: failed.Message{FailedQueue: "q.failed"}}}
		if _, err := a.Ingest(ctx, one); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled Ingest: got error %v, want context.Canceled", err)
		}
		value(a.Ingest(t.Context(), one))(t)
		if n := value(a.Count(t.Context(), failed.Filter{}))(t); n.N != 1 {
			t.Errorf("got %d messages, want 1", n.N)
		}
	})
}
