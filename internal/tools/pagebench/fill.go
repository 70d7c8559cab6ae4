package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// span is the period over which the failures are spread.
const span = 30 * 24 * time.Hour

// fill adds failures to the archive until it contains n failures.
func fill(ctx context.Context, db *sql.DB, d store.Dialect, a *store.Archive, n int) error {
	total, err := a.Count(ctx, failed.Filter{})
	if err != nil || total.N >= int64(n) {
		return err
	}
	// Inserts into PostgreSQL are faster without the word index, which is created at the end.
	late := d == store.PostgreSQL && n-int(total.N) > 100_000
	if late {
		if _, err := db.ExecContext(ctx, `DROP INDEX IF EXISTS reprise_failed_search_words`); err != nil {
			return err
		}
	}
	const batch = 1000
	r := rand.New(rand.NewPCG(uint64(total.N), 2))
	begun := time.Now()
	for i := int(total.N); i < n; i += batch {
		messages := make([]failed.Message, 0, batch)
		for j := i; j < min(n, i+batch); j++ {
			messages = append(messages, failure(r, j, time.Now().Add(-time.Duration(float64(span)*float64(n-j)/float64(n)))))
		}
		if _, err := a.Add(ctx, messages); err != nil {
			return err
		}
		if i/batch%100 == 0 {
			log.Printf("%s: %d of %d, %d messages per second", d, i, n, int(float64(i-int(total.N))/time.Since(begun).Seconds()))
		}
	}
	if d == store.SQLite {
		return nil
	}
	if late {
		if _, err := db.ExecContext(ctx, `SET maintenance_work_mem = '512MB'; CREATE INDEX reprise_failed_search_words ON reprise_failed_search USING GIN (words)`); err != nil {
			return err
		}
	}
	_, err = db.ExecContext(ctx, `VACUUM ANALYZE`) // update the statistics now, as autovacuum would later
	return err
}

// queues is the number of work queues. The first queues have the most failures.
const queues = 12

func queueOf(r *rand.Rand) string { return fmt.Sprint("queue-", min(int(r.ExpFloat64()*3), queues-1)) }

// failure returns a failure. In 1 of 200 cases it has a rare error, and otherwise one of a few dozen common errors.
func failure(r *rand.Rand, i int, last time.Time) failed.Message {
	last = last.Truncate(time.Second)
	kind := int(r.ExpFloat64() * 3)
	text := fmt.Sprintf(kinds[kind%len(kinds)]+" in step "+string(rune('a'+kind)), i, r.IntN(200))
	if r.IntN(200) == 0 {
		text = fmt.Sprintf("order %d: no such product: %s", i, letters(r, 3))
	}
	queue := queueOf(r)
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
	return failed.Message{
		Queue: queue, FailedQueue: topology.FailedQueue(queue), Exchange: "orders", RoutingKey: "order.placed",
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
				Timestamp: last.Add(-time.Hour), AppID: "shop", Exchange: "", RoutingKey: topology.FailedQueue(queue),
			},
		},
	}
}

func letters(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'g' + byte(r.IntN(20)) // 'g' or later, so that no letter is a hexadecimal digit
	}
	return string(b)
}

var kinds = []string{
	"charging order %[1]d: dial tcp 10.0.%[2]d.7:5432: i/o timeout",
	"customer %[1]d has no address", "order %[1]d: unexpected status 503 Service Unavailable", "json: cannot unmarshal string into field %[1]d",
	"order %[1]d: deadlock detected (SQLSTATE 40P01)", "context deadline exceeded after %[2]dms", "index out of range [%[2]d]",
}

var names = []string{"Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald", "Niklaus", "Tony", "Leslie", "Margaret", "Ken", "Dennis", "Frances", "Radia"}

// act discards, edits and replays messages, so that lists and filters have results.
func act(ctx context.Context, a *store.Archive, finish func(context.Context) error) error {
	if replays, _, err := a.Replays(ctx, store.Page{}); err != nil || len(replays) > 0 {
		return err
	}
	const who = "cli:bench"
	if _, err := a.Discard(ctx, failed.Filter{Text: "hundredth"}, "seen", who); err != nil {
		return err
	}
	// The work queues of these messages are unknown, so a replay cannot send them.
	var lost []failed.Message
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 300 {
		m := failure(r, i, time.Now())
		m.Queue, m.FailedQueue = "dead-letters", "dead-letters"
		lost = append(lost, m)
	}
	ids, err := a.Add(ctx, lost)
	if err != nil {
		return err
	}
	edited := slices.Clone(ids[:100])
	for _, id := range edited {
		m, err := a.Get(ctx, id)
		if err != nil {
			return err
		}
		c := m.Content
		c.Body = append(slices.Clone(c.Body), ' ')
		if err := a.Edit(ctx, id, 0, c, who); err != nil {
			return err
		}
	}
	for _, f := range []failed.Filter{{Queue: "dead-letters"}, {Queue: "queue-9"}, {Queue: "queue-11"}, {Text: "product", Queue: "queue-7"}} {
		if _, err := a.BeginReplay(ctx, failed.Plan{Filter: f}, who); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return finish(ctx)
}
