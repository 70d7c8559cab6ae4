package history

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// database is an empty database with a simulated clock.
type database struct {
	*sql.DB
	dialect store.Dialect
	now     time.Time
}

// noon is the start time of the tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func eachDatabase(t *testing.T, test func(t *testing.T, db *database)) {
	t.Run("sqlite", func(t *testing.T) { test(t, openSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, open(t, store.PostgreSQL, "pgx", pgtest.Schema(t))) })
}

func openSQLite(t testing.TB) *database {
	return open(t, store.SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?_pragma=synchronous(OFF)")
}

func open(t testing.TB, d store.Dialect, driver, source string) *database {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &database{db, d, noon}
}

func (d *database) clock() time.Time { return d.now }

// history opens the history again, like a separate process.
func (d *database) history(t fataler) *History {
	t.Helper()
	h, err := Open(context.Background(), d.DB, Config{Dialect: d.dialect, Clock: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

type fataler interface {
	Helper()
	Fatal(...any)
}

func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// empty removes all rows.
func (d *database) empty(t fataler) {
	t.Helper()
	for _, table := range []string{"interval", "recorded", "worker", "mark"} {
		if _, err := d.Exec("DELETE FROM " + DefaultPrefix + table); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Exec("UPDATE " + DefaultPrefix + "about SET value = '0' WHERE name <> 'version'"); err != nil {
		t.Fatal(err)
	}
}

func record(t fataler, h *History, from Sources) {
	t.Helper()
	if err := h.Record(context.Background(), from); err != nil {
		t.Fatal(err)
	}
}

// worker simulates an announced worker.
type worker struct {
	protocol.WorkerStatus
}

func newWorker(id, queue string, now time.Time) *worker {
	return &worker{protocol.WorkerStatus{ID: id, Queue: queue, Started: now, State: protocol.WorkerConsuming}}
}

// works adds processed messages to the totals.
func (w *worker) works(succeeded, failed uint64, took time.Duration) {
	w.Counts.Succeeded += succeeded
	w.Counts.Failed += failed
	w.Counts.Retried += failed
	w.Took.Buckets[protocol.TookBucket(took)] += succeeded + failed
	w.Took.SumMS += (succeeded + failed) * uint64(took.Milliseconds())
}

func (w *worker) totals() Totals { return Totals{Counts: w.Counts, Took: w.Took} }

// status returns the status that the worker sends.
func (w *worker) status(now time.Time) protocol.WorkerStatus {
	w.Sent = now
	return w.WorkerStatus
}

// A constant rate results in about equal counts in all minutes, regardless of when statuses arrive. Unrecorded time is
// a gap.
func TestConstantRateWithGap(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		h := db.history(t)
		w := newWorker("a", "orders", db.now)
		h.recorder.until = db.now
		for second := range 45 * 60 {
			db.now = db.now.Add(time.Second)
			w.works(2, 0, 3*time.Millisecond)
			switch gap := second >= 10*60 && second < 25*60; {
			case gap:
			case second%15 == 7:
				h.Observe(w.status(db.now))
			case second%15 == 9:
				record(t, h, Sources{})
			}
		}
		s := must(h.Series(t.Context(), "orders", Hour))(t)
		if sum := s.Sum(); sum.Succeeded != 2*45*60-2*7 { // the events since the last status are not announced yet
			t.Errorf("successes: got %d, want %d", sum.Succeeded, 2*45*60-2*7)
		}
		for _, p := range s.Points {
			minute := int(p.Start.Sub(noon).Minutes())
			if gap := minute < 0 || minute >= 10 && minute < 25; p.Gap() != gap {
				t.Errorf("minute %d: got gap %t, want %t", minute, p.Gap(), gap)
			}
			// The events of the gap are spread over its minutes.
			if minute >= 0 && minute < 44 && (p.Succeeded < 119 || p.Succeeded > 121) {
				t.Errorf("minute %d: got %d successes, want about 120", minute, p.Succeeded)
			}
		}
		if gaps := s.Gaps(); len(gaps) != 2 || gaps[1] != [2]time.Time{noon.Add(10 * time.Minute), noon.Add(25 * time.Minute)} {
			t.Errorf("gaps: got %v, want two, the second from minute 10 to 25", gaps)
		}
		if p95 := s.Sum().Took.Quantile(0.95); p95 != 4*time.Millisecond {
			t.Errorf("p95: got %s, want 4ms", p95)
		}
		week := must(h.Series(t.Context(), "orders", Week))(t)
		if p := week.Points[len(week.Points)-1]; p.Recorded != 30*time.Minute || p.Totals != s.Sum() {
			t.Errorf("last hour: got %+v, want Recorded 30m and totals %+v", p, s.Sum())
		}
	})
}

// Time without a connection to the broker is a gap, and does not count as zero events.
func TestTimeWithoutConnectionIsGap(t *testing.T) {
	db := openSQLite(t)
	h := db.history(t)
	unconnected := func(context.Context) error { return context.DeadlineExceeded }
	for range 20 {
		record(t, h, Sources{Listening: unconnected})
		db.now = db.now.Add(Every)
	}
	s := must(h.Series(t.Context(), "orders", Hour))(t)
	if gaps := s.Gaps(); len(gaps) != 1 || len(s.Points) != 60 {
		t.Errorf("got gaps %v in %d intervals, want one gap in 60", gaps, len(s.Points))
	}
}

// The number of rows is limited, even after the first status of a worker that has run for a month.
func TestRowsPerQueueAreLimited(t *testing.T) {
	db := openSQLite(t)
	h := db.history(t)
	w := newWorker("a", "orders", db.now.Add(-30*24*time.Hour))
	w.works(1e9, 1e6, time.Second)
	for range 30 {
		h.Observe(w.status(db.now))
		record(t, h, Sources{})
		db.now = db.now.Add(7 * time.Hour)
		w.works(1e6, 1e6, time.Second)
	}
	h.Observe(w.status(db.now))
	record(t, h, Sources{})
	var rows, size int
	if err := db.QueryRow("SELECT COUNT(*), SUM(LENGTH(totals)) FROM "+DefaultPrefix+"interval").Scan(&rows, &size); err != nil {
		t.Fatal(err)
	}
	if rows > 700 || rows < 600 {
		t.Errorf("got %d rows, want 600 to 700", rows)
	}
	t.Logf("%d rows, %d bytes of totals", rows, size)
	if recorded := must(h.Series(t.Context(), "orders", Week))(t).Sum().Succeeded; recorded < 20e6 {
		t.Errorf("got %d successes in a week, want at least 20e6", recorded)
	}
}

// The number of rows is limited, even with forged queues, workers and numbers.
func TestForgedStatusesUseLimitedRows(t *testing.T) {
	db := openSQLite(t)
	h := db.history(t)
	for i := range MaxQueues + 50 {
		w := newWorker(fmt.Sprint("w", i), fmt.Sprint("q", i), db.now)
		w.works(1, 0, time.Second)
		h.Observe(w.status(db.now))
	}
	big := newWorker("big", "q1", db.now)
	big.works(1<<60, 0, 0)
	h.Observe(big.status(db.now))
	record(t, h, Sources{})
	all := must(h.All(t.Context(), Hour))(t)
	if len(all) != MaxQueues {
		t.Errorf("got %d queues with a history, want MaxQueues", len(all))
	}
	for _, s := range all {
		if n := s.Sum().Succeeded; n != 1 {
			t.Errorf("queue %s: got %d successes, want 1", s.Queue, n)
		}
	}
	again := db.history(t) // another process also counts the stored queues
	w := newWorker("late", "late", db.now)
	w.works(1, 0, time.Second)
	again.Observe(w.status(db.now))
	record(t, again, Sources{})
	if n := len(must(again.All(t.Context(), Hour))(t)); n != MaxQueues {
		t.Errorf("got %d queues with a history, want MaxQueues", n)
	}
}

func TestOpenRejectsInvalidArguments(t *testing.T) {
	db := openSQLite(t)
	db.history(t)
	if _, err := db.Exec("UPDATE " + DefaultPrefix + "about SET value = '2' WHERE name = 'version'"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), db.DB, Config{Dialect: store.SQLite}); err == nil {
		t.Error("Open accepts tables of a newer version")
	}
	if _, err := ParseRange("1y"); err == nil {
		t.Error("ParseRange accepts an unknown range")
	}
	for _, r := range Ranges() {
		if found, err := ParseRange(r.Name); err != nil || found != r {
			t.Errorf("ParseRange: got %v, %v, want %v", found, err, r)
		}
	}
}

func TestDecodeRejectsDamagedTotals(t *testing.T) {
	for _, b := range [][]byte{{0x80}, make([]byte, len(numbers{})+1)} {
		if _, err := decode(b); err == nil {
			t.Errorf("decode accepts %x", b)
		}
	}
}
