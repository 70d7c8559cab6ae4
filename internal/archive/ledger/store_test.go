package ledger_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

type database struct {
	*sql.DB
	dialect store.Dialect
}

// eachDatabase runs test once for each kind of database. It skips the PostgreSQL subtest if no server is configured.
// `make test` starts a server.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, openPostgres(t)) })
}

func openSQLite(t *testing.T) database {
	t.Helper()
	return database{openFile(t, filepath.Join(t.TempDir(), "test.db")), store.SQLite}
}

func openPostgres(t *testing.T) database {
	t.Helper()
	db, err := sql.Open("pgx", pgtest.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return database{db, store.PostgreSQL}
}

// simulation is a ledger with a simulated broker and a simulated clock.
type simulation struct {
	*ledger.Ledger
	db      database
	now     time.Time
	queue   string
	broker  figures
	account ledger.Account
}

type figures map[string]ledger.Figures

func (b figures) Queues(context.Context) (map[string]ledger.Figures, error) {
	if b == nil {
		return nil, errors.New("broker unavailable")
	}
	return maps.Clone(b), nil
}

func newSimulation(t *testing.T, db database) *simulation {
	t.Helper()
	d := &simulation{db: db, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), queue: "ordres \xff\x00", broker: figures{}}
	d.account = ledger.Account{Work: []string{d.queue}}
	var err error
	if d.Ledger, err = ledger.Open(t.Context(), db.DB, ledger.Config{Dialect: db.dialect, Clock: d.clock, Keep: 100}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *simulation) clock() time.Time { return d.now }

// pass takes n samples, and advances the clock by 15 s before each sample.
func (d *simulation) pass(t *testing.T, n int) {
	t.Helper()
	for range n {
		d.now = d.now.Add(15 * time.Second)
		if err := d.Take(t.Context(), ledger.Sources{Broker: d.broker}, []ledger.Account{d.account}); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *simulation) line(t *testing.T) ledger.Line {
	t.Helper()
	report, err := d.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Accounts) != 1 || report.Accounts[0].Name != d.queue {
		t.Fatalf("got report %+v, want one account", report)
	}
	return report.Accounts[0]
}

// process creates a book, and returns functions that write and close the book.
func (d *simulation) process(t *testing.T, name string) (write func(done int), end func()) {
	t.Helper()
	b := ledger.NewBook(d.db.DB, ledger.BookConfig{Dialect: d.db.dialect, Process: name, Every: time.Hour, Clock: d.clock})
	b.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: d.queue})
	write = func(done int) {
		t.Helper()
		for range done {
			b.Observe(reprise.Event{Kind: reprise.EventDone, Queue: d.queue})
		}
		if err := b.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return write, func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// The counts of old processes remain after their pages were merged, and count only once if such a process continues.
func TestCountsOfOldProcessesRemain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		d := newSimulation(t, db)
		d.broker[d.queue] = ledger.Figures{}
		one, end := d.process(t, "one")
		two, _ := d.process(t, "two")
		one(0)
		two(0)
		d.pass(t, 4)
		one(3)
		two(2)
		d.broker[d.queue] = ledger.Figures{Published: 5, Taken: 5}
		d.pass(t, 4)
		end()
		for range 10 {
			d.now = d.now.Add(24 * time.Hour)
			d.pass(t, 4)
			if l := d.line(t); l.State != ledger.Balanced || l.Done != 5 {
				t.Fatalf("at %s: got %+v, want a balanced account with 5 done", d.now, l)
			}
		}
		if n := d.pages(t); n != 1 {
			t.Errorf("got %d pages, want only the page of old processes", n)
		}
		two(1)
		d.broker[d.queue] = ledger.Figures{Published: 6, Taken: 6}
		d.pass(t, 4)
		if l := d.line(t); l.State != ledger.Balanced || l.Done != 6 {
			t.Errorf("after the old process continued: got %+v, want 6 done", l)
		}
	})
}

func (d *simulation) pages(t *testing.T) (n int) {
	t.Helper()
	if err := d.db.QueryRow(`SELECT count(*) FROM reprise_ledger_book`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A restarted broker resets its counters. Messages that were published during the restart are a discrepancy with this
// reason. Messages that were published before or after the restart are not.
func TestBrokerCounterReset(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		d := newSimulation(t, db)
		d.broker[d.queue] = ledger.Figures{Published: 1000, Taken: 1000}
		report, _ := d.process(t, "one")
		report(0)
		d.pass(t, 4)
		d.broker[d.queue] = ledger.Figures{Published: 2, Taken: 2}
		report(2)
		d.pass(t, 4)
		if l := d.line(t); l.State != ledger.Balanced || l.In != 2 || l.Done != 2 {
			t.Errorf("after the reset: got %+v, want 2 in and 2 done", l)
		}
		d.broker[d.queue] = ledger.Figures{Published: 0, Messages: 3} // published before the counters restarted
		report(0)
		d.pass(t, 4)
		l := d.line(t)
		if l.State != ledger.Differs || l.Missing != -3 || len(l.Differences) != 1 || !strings.HasPrefix(l.Differences[0].Reasons[0], "the counters of the broker restarted") {
			t.Errorf("published during the reset: got %+v, want -3 missing", l)
		}
	})
}

// The ledger stores a limited number of samples, and still reports older discrepancies.
func TestSamplesAreLimited(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		d := newSimulation(t, db)
		d.broker[d.queue] = ledger.Figures{}
		report, _ := d.process(t, "one")
		report(0)
		d.pass(t, 4)
		opened := d.line(t).Since
		d.broker[d.queue] = ledger.Figures{Published: 1} // lost immediately
		d.pass(t, 4)
		for n := range int64(150) {
			d.broker[d.queue] = ledger.Figures{Published: n + 2, Messages: n + 1}
			report(0)
			d.pass(t, 1)
		}
		d.pass(t, 4)
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM reprise_ledger_sample`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n != 100 {
			t.Errorf("got %d samples, want 100", n)
		}
		l := d.line(t)
		if l.State != ledger.Differs || l.Missing != 1 || !l.Since.Equal(opened) || !l.Differences[0].Since.IsZero() {
			t.Errorf("account: got %+v, want 1 missing message since %s, and a difference without a start", l, opened)
		}
	})
}

// Processes that start at the same time can all try to create the tables.
func TestConcurrentOpen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := ledger.Open(t.Context(), db.DB, ledger.Config{Dialect: db.dialect}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := db.Exec(`UPDATE reprise_ledger_about SET value = '99'`); err != nil {
			t.Fatal(err)
		}
		_, err := ledger.Open(t.Context(), db.DB, ledger.Config{Dialect: db.dialect})
		if err == nil || !strings.Contains(err.Error(), "use the program that created the tables") {
			t.Errorf("tables of another version: got error %v, want \"use the program that created the tables\"", err)
		}
	})
}

// Without figures of the broker, the ledger does not take a sample, and the state becomes outdated.
func TestTakeWithoutBroker(t *testing.T) {
	d := newSimulation(t, openSQLite(t))
	d.broker[d.queue] = ledger.Figures{}
	report, _ := d.process(t, "one")
	report(0)
	d.pass(t, 4)
	d.broker = nil
	if err := d.Take(t.Context(), ledger.Sources{Broker: d.broker}, []ledger.Account{d.account}); err == nil {
		t.Error("Take succeeded without figures")
	}
	d.now = d.now.Add(2 * time.Minute)
	if l := d.line(t); l.State != ledger.Unknown || !strings.HasPrefix(l.Note, "no figures since") {
		t.Errorf("account: got %+v, want state Unknown without figures", l)
	}
}

// While the clock is behind the last sample, the ledger takes no samples, and does not call an account balanced.
func TestAccountIsUnknownWhileClockIsBehind(t *testing.T) {
	d := newSimulation(t, openSQLite(t))
	d.broker[d.queue] = ledger.Figures{}
	report, _ := d.process(t, "one")
	report(0)
	d.pass(t, 4)
	if l := d.line(t); l.State != ledger.Balanced {
		t.Fatalf("account: got %+v, want state Balanced", l)
	}
	d.now = d.now.Add(-24 * time.Hour)
	d.broker[d.queue] = ledger.Figures{}
	d.pass(t, 4)
	if l := d.line(t); l.State != ledger.Unknown || !strings.Contains(l.Note, "the clock is behind the last figures, 2026-03-01 12:01:00 UTC") {
		t.Errorf("account: got %+v, want state Unknown because of the clock", l)
	}
}

// A ledger that opens an SQLite database waits for a concurrent writer.
func TestOpenWaitsForWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	writer := openFile(t, path)
	if _, err := ledger.Open(t.Context(), writer, ledger.Config{Dialect: store.SQLite}); err != nil {
		t.Fatal(err)
	}
	tx, err := writer.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`UPDATE reprise_ledger_about SET value = value`); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Open(t.Context(), openFile(t, path), ledger.Config{Dialect: store.SQLite}); err != nil {
		t.Errorf("Open during another transaction: got error %v, want nil", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	book := ledger.NewBook(writer, ledger.BookConfig{Dialect: store.SQLite})
	book.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	var writes, opens sync.WaitGroup
	opened := make(chan struct{})
	writes.Go(func() {
		for {
			if err := book.Write(t.Context()); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-opened:
				return
			default:
			}
		}
	})
	for i := range 16 {
		db := openFile(t, path)
		opens.Go(func() {
			cfg := ledger.Config{Dialect: store.SQLite, Prefix: string(rune('a' + i/4))} // four callers create the same tables
			if _, err := ledger.Open(t.Context(), db, cfg); err != nil {
				t.Error(err)
			}
		})
	}
	opens.Wait()
	close(opened)
	writes.Wait()
}

// Before Run, a book returns ErrNotOpen instead of an error about missing tables.
func TestBookIsNotOpenBeforeRun(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		book := ledger.NewBook(db.DB, ledger.BookConfig{Dialect: db.dialect})
		if err := book.Healthy(t.Context()); !errors.Is(err, ledger.ErrNotOpen) {
			t.Errorf("Healthy before the first write: got %v, want ErrNotOpen", err)
		}
		if err := book.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := book.Healthy(t.Context()); err != nil {
			t.Errorf("Healthy after the first write: got %v, want nil", err)
		}
	})
}
