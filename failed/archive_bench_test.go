package failed_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/topology"
)

// BenchmarkPages measures how long pages take with many failures in the archive:
// REPRISE_BENCH_FAILURES of them, 20,000 unless it is set. Of each kind of page it
// reports the 95th percentile, as p95-ms; of filling the archive, messages per second
// and the bytes on disk of a message.
//
//	REPRISE_BENCH_FAILURES=1000000 go test -run '^$' -bench Pages -benchtime 100x -timeout 2h ./failed
func BenchmarkPages(b *testing.B) {
	n := 20_000
	if s := os.Getenv("REPRISE_BENCH_FAILURES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("sqlite", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "bench.db")
		db := open(b, failed.SQLite, "sqlite", "file:"+file)
		benchPages(b, db, n, func() int64 {
			db.exec(b, "PRAGMA wal_checkpoint(TRUNCATE)")
			info, err := os.Stat(file)
			check(b, err)
			return info.Size()
		})
	})
	b.Run("postgres", func(b *testing.B) {
		db := openPostgres(b)
		benchPages(b, db, n, func() (size int64) {
			check(b, db.QueryRow(`SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
				WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) AND c.relkind = 'r'`).Scan(&size))
			return size
		})
	})
}

func benchPages(b *testing.B, db database, n int, size func() int64) {
	a := db.archive(b)
	rate := fill(b, db, a, n)
	each := float64(size()) / float64(n)
	b.Run("fill", func(b *testing.B) { // it has been done: figures need a benchmark to belong to
		for b.Loop() {
		}
		b.ReportMetric(rate, "msg/s")
		b.ReportMetric(each, "B/msg")
	})
	// Some of everything: one in a hundred is discarded.
	value(a.Discard(b.Context(), failed.Filter{Text: "hundredth"}, "seen", "bench"))(b)
	pages(b, a, n)
}

// fill adds n failures, and returns how many a second. Beyond the first hundred thousand,
// PostgreSQL does without its index of words, which is made at once in the end: a
// million takes minutes then.
func fill(b *testing.B, db database, a *failed.Archive, n int) (rate float64) {
	const batch = 5000
	const measured = 100_000
	r := rand.New(rand.NewPCG(1, 2))
	words := a.Config().Prefix + "search_words"
	var took time.Duration
	for i := 0; i < n; i += batch {
		if i == measured && db.dialect == failed.PostgreSQL {
			db.exec(b, "DROP INDEX "+words)
		}
		var arrivals []failed.Arrival
		for j := i; j < min(n, i+batch); j++ {
			arrivals = append(arrivals, failure(r, j, n))
		}
		start := time.Now()
		ids := value(a.Ingest(b.Context(), arrivals))(b)
		check(b, a.Settled(b.Context(), ids))
		if i < measured {
			took += time.Since(start)
		}
	}
	if db.dialect == failed.PostgreSQL {
		if n > measured {
			db.exec(b, "SET maintenance_work_mem = '512MB'; CREATE INDEX "+words+" ON "+a.Config().Prefix+"search USING GIN (words)")
		}
		db.exec(b, "VACUUM ANALYZE") // as autovacuum does by and by
	}
	return float64(min(n, measured)) / took.Seconds()
}

func pages(b *testing.B, a *failed.Archive, n int) {
	now := time.Now()
	groups, _, err := a.Groups(b.Context(), failed.GroupFilter{}, failed.Page{Size: 200})
	check(b, err)
	var took []time.Duration
	timed := func(f func()) {
		start := time.Now()
		f()
		took = append(took, time.Since(start))
	}
	list := func(f func(r *rand.Rand) failed.Filter) func(r *rand.Rand) {
		return func(r *rand.Rand) {
			filter := f(r)
			p := failed.Page{}
			for range 2 { // the page after it, too
				timed(func() {
					_, next, err := a.List(b.Context(), filter, p)
					check(b, err)
					p.After = next
				})
				if p.After == "" {
					break
				}
			}
		}
	}
	one := func(f func(r *rand.Rand)) func(r *rand.Rand) {
		return func(r *rand.Rand) { timed(func() { f(r) }) }
	}
	for _, page := range []struct {
		name string
		do   func(r *rand.Rand)
	}{
		{"list", list(func(*rand.Rand) failed.Filter { return failed.Filter{} })},
		{"list/failed", list(func(*rand.Rand) failed.Filter { return failed.Filter{States: []failed.State{failed.Failed}} })},
		{"list/discarded", list(func(*rand.Rand) failed.Filter { return failed.Filter{States: []failed.State{failed.Discarded}} })},
		{"list/queue", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Queue: fmt.Sprint("queue-", r.IntN(12))} })},
		{"list/group", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Group: groups[r.IntN(len(groups))].ID} })},
		{"list/day", list(func(r *rand.Rand) failed.Filter {
			d := now.Add(-time.Duration(r.IntN(29)+1) * 24 * time.Hour)
			return failed.Filter{Queue: fmt.Sprint("queue-", r.IntN(12)), Since: d, Until: d.Add(time.Hour)}
		})},
		{"list/attempts", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{MinAttempts: 9, Queue: fmt.Sprint("queue-", r.IntN(12))}
		})},
		{"list/attempts-none", list(func(r *rand.Rand) failed.Filter { return failed.Filter{MinAttempts: 1000} })},
		{"search/every", list(func(*rand.Rand) failed.Filter { return failed.Filter{Text: "order"} })},
		{"search/often", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: "timeout customer"} })},
		{"search/hundredth", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: "hundredth"} })},
		{"search/hundredth-queue", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Text: "hundredth", Queue: fmt.Sprint("queue-", r.IntN(12))}
		})},
		{"search/one", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: fmt.Sprint("order ", r.IntN(n))} })},
		{"search/none", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: fmt.Sprint("nobody", r.IntN(n))} })},
		{"search/discarded", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", States: []failed.State{failed.Discarded}}
		})},
		{"search/apart", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: "deadlock timeout"} })}, // often, and never both
		{"search/old", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", Until: now.Add(-20 * 24 * time.Hour)}
		})},
		{"search/attempts-none", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Text: "customer", MinAttempts: 1000} })},
		{"search/replayed", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Text: "customer", States: []failed.State{failed.Replayed}}
		})},
		{"search/header", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Headers: map[string]string{"tenant": fmt.Sprint("tenant-", r.IntN(1000))}}
		})},
		{"search/error", list(func(r *rand.Rand) failed.Filter {
			return failed.Filter{Error: fmt.Sprint("10.0.", r.IntN(200), ".7:5432: i/o")}
		})},
		{"search/error-words", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Error: "has no address in step"} })},
		{"search/error-part", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Error: "eadloc"} })},
		{"search/error-none", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Error: "eadlok"} })},
		{"search/error-apart", list(func(r *rand.Rand) failed.Filter { return failed.Filter{Error: "(deadlock timeout)"} })},
		{"groups", one(func(*rand.Rand) {
			_, _, err := a.Groups(b.Context(), failed.GroupFilter{State: failed.Failed}, failed.Page{})
			check(b, err)
		})},
		{"groups/queue", one(func(r *rand.Rand) {
			_, _, err := a.Groups(b.Context(), failed.GroupFilter{Queue: fmt.Sprint("queue-", r.IntN(12)), MostFailed: true}, failed.Page{})
			check(b, err)
		})},
		{"group", one(func(r *rand.Rand) { value(a.Group(b.Context(), groups[r.IntN(len(groups))].ID))(b) })},
		{"groups/text", one(func(*rand.Rand) {
			_, _, err := a.Groups(b.Context(), failed.GroupFilter{Text: "deadlock"}, failed.Page{})
			check(b, err)
		})},
		{"queues", one(func(*rand.Rand) { value(a.Queues(b.Context()))(b) })},
		{"count/text", one(func(*rand.Rand) { value(a.Count(b.Context(), failed.Filter{Text: "customer"}))(b) })},
		{"count/hundredth", one(func(*rand.Rand) { value(a.Count(b.Context(), failed.Filter{Text: "hundredth"}))(b) })},
		{"count/apart", one(func(*rand.Rand) { value(a.Count(b.Context(), failed.Filter{Text: "deadlock timeout"}))(b) })},
		{"count/attempts", one(func(*rand.Rand) { value(a.Count(b.Context(), failed.Filter{MinAttempts: 9}))(b) })},
		{"get", one(func(r *rand.Rand) { value(a.Get(b.Context(), failed.ID(r.IntN(n)+1)))(b) })},
	} {
		b.Run(page.name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(3, 4))
			took = nil
			for b.Loop() {
				page.do(r)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}

// failure is one of n that are spread over 30 days, in 12 queues and some 200
// groups, of which some are much larger than others.
func failure(r *rand.Rand, i, n int) failed.Arrival {
	now := time.Now()
	last := now.Add(-time.Duration(float64(30*24*time.Hour) * float64(n-i) / float64(n))).Truncate(time.Second)
	kind := int(r.ExpFloat64() * 3)
	kinds := []string{
		"charging order %[1]d: dial tcp 10.0.%[2]d.7:5432: i/o timeout",
		"customer %[1]d has no address", "order %[1]d: unexpected status 503 Service Unavailable", "json: cannot unmarshal string into field %[1]d",
		"order %[1]d: deadlock detected (SQLSTATE 40P01)", "context deadline exceeded after %[2]dms", "index out of range [%[2]d]",
	}
	text := fmt.Sprintf(kinds[kind%len(kinds)]+" in step "+string(rune('a'+kind)), i, r.IntN(200))
	queue := fmt.Sprint("queue-", min(int(r.ExpFloat64()*3), 11))
	attempts := 1 + r.IntN(10)
	var entries []any
	var errs []reprise.AttemptError
	for j := range min(attempts, 4) {
		e := reprise.AttemptError{Attempt: j + 1, Time: last.Add(time.Duration(j-4) * time.Minute), Error: text, Host: "worker-3", Duration: 30 * time.Millisecond}
		errs = append(errs, e)
		entries = append(entries, topology.Table{"attempt": int64(e.Attempt), "time": e.Time, "error": e.Error, "host": e.Host, "duration-ms": int64(30)})
	}
	word := ""
	if i%100 == 0 {
		word = "hundredth"
	}
	return failed.Arrival{Message: failed.Message{
		Queue: queue, FailedQueue: queue + ".failed", Exchange: "orders", RoutingKey: "order.placed",
		Attempts: attempts, Errors: errs, Error: text, FirstFailed: errs[0].Time, LastFailed: last,
		Content: failed.Content{
			Body: fmt.Appendf(nil, `{"order": %d, "customer": {"id": %d, "name": "%s %s"}, "items": [{"sku": "SKU-%d", "quantity": %d, "price": "%d.99"}], "currency": "EUR", "note": "%s"}`,
				i, r.IntN(50_000), names[r.IntN(len(names))], names[r.IntN(len(names))], r.IntN(5000), r.IntN(9), r.IntN(500), word),
			Headers: topology.Table{
				topology.HeaderAttempts: int64(attempts), topology.HeaderErrors: entries, topology.HeaderFirstFailed: errs[0].Time,
				topology.HeaderQueue: queue, topology.HeaderExchange: "orders", topology.HeaderRoutingKey: "order.placed",
				"tenant": fmt.Sprint("tenant-", r.IntN(1000)), "traceparent": fmt.Sprintf("00-%016x%016x-%016x-01", r.Uint64(), r.Uint64(), r.Uint64()),
			},
			Properties: failed.Properties{
				ContentType: "application/json", MessageID: fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64()),
				Timestamp: last.Add(-time.Hour), AppID: "shop", Exchange: "", RoutingKey: queue + ".failed",
			},
		},
	}}
}

var names = []string{"Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Niklaus", "Tony", "Leslie", "Margaret", "Ken", "Dennis", "Frances", "Radia"}
