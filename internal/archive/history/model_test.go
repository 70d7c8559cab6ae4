package history

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// listener is a recording process, with the totals that it has observed but not yet recorded.
type listener struct {
	*History
	heard map[*worker]Totals
}

// The rows of each step add up to the announced totals, even if statuses are lost, repeated or late, if workers
// restart, and if two processes record.
func TestRowsAddUpToTotals(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		db.history(t)
		rapid.Check(t, func(t *rapid.T) { addUp(t, db) })
	})
}

func addUp(t *rapid.T, db *database) {
	db.now = noon
	db.empty(t)
	queues := []string{"orders", "mails"}
	listeners := []*listener{{db.history(t), map[*worker]Totals{}}, {db.history(t), map[*worker]Totals{}}}
	recorded := map[*worker]Totals{}
	var all, alive []*worker
	start := func() {
		w := newWorker(fmt.Sprint("w", len(all)), rapid.SampledFrom(queues).Draw(t, "queue"), db.now)
		all, alive = append(all, w), append(alive, w)
	}
	send := func(w *worker, to ...*listener) {
		s := w.status(db.now)
		for _, l := range to {
			l.Observe(s)
			l.heard[w] = w.totals()
		}
	}
	some := func() (to []*listener) {
		for i, l := range listeners {
			if rapid.Bool().Draw(t, fmt.Sprint("arrives at ", i)) {
				to = append(to, l)
			}
		}
		return to
	}
	note := func(l *listener) {
		for w, heard := range l.heard {
			if heard.Succeeded+heard.Failed >= recorded[w].Succeeded+recorded[w].Failed {
				recorded[w] = heard
			}
		}
		clear(l.heard)
	}
	start()
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch rapid.SampledFrom([]string{"work", "work", "pass", "pass", "status", "status", "record", "record", "start", "stop", "crash", "unavailable"}).Draw(t, "step") {
		case "work":
			if len(alive) > 0 {
				rapid.SampledFrom(alive).Draw(t, "worker").works(rapid.Uint64Range(0, 1000).Draw(t, "succeeded"), rapid.Uint64Range(0, 9).Draw(t, "failed"),
					time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "took")))
			}
		case "pass":
			db.now = db.now.Add(time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "milliseconds")) * time.Millisecond)
		case "status":
			if len(alive) > 0 {
				send(rapid.SampledFrom(alive).Draw(t, "worker"), some()...)
			}
		case "record":
			l := rapid.SampledFrom(listeners).Draw(t, "listener")
			record(t, l.History, Sources{})
			note(l)
		case "start":
			start()
		case "stop":
			if len(alive) > 0 {
				i := rapid.IntRange(0, len(alive)-1).Draw(t, "worker")
				alive[i].State = protocol.WorkerStopped
				send(alive[i], some()...)
				alive = slices.Delete(alive, i, i+1)
			}
		case "crash":
			i := rapid.IntRange(0, 1).Draw(t, "listener")
			listeners[i] = &listener{db.history(t), map[*worker]Totals{}}
		case "unavailable":
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if listeners[0].Record(ctx, Sources{}) == nil {
				t.Fatal("Record succeeded with a cancelled context")
			}
		}
	}
	for _, w := range alive {
		send(w, listeners...)
	}
	for _, l := range listeners {
		record(t, l.History, Sources{})
		note(l)
	}
	for _, queue := range queues {
		var want Totals
		for w, totals := range recorded {
			if w.Queue == queue {
				want = want.Add(totals)
			}
		}
		for _, r := range Ranges() {
			// Read the rows, because a Series may cover less than the time of the test.
			var got, totals Totals
			for err := range listeners[0].db.Rows(context.Background(), `SELECT totals FROM {interval} WHERE span = $1 AND queue = $2`, seconds(r.Step), []byte(queue)).Scan(stored(&totals)) {
				if err != nil {
					t.Fatal(err)
				}
				got = got.Add(totals)
			}
			if got != want {
				t.Fatalf("rows of %s of queue %s: got %+v, want %+v", r.Step, queue, got, want)
			}
		}
	}
}

// Each archived message counts once, at the time of its failure, even if several processes record.
func TestArrivalsCountOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db *database) {
		archive := must(store.Open(t.Context(), db.DB, store.Config{Dialect: db.dialect, Clock: db.clock}))(t)
		one, two := db.history(t), db.history(t)
		want := map[time.Time]uint64{}
		n := 0
		for i := range 30 {
			db.now = db.now.Add(time.Minute)
			var batch []failed.Message
			for range i % 4 {
				n++
				at := db.now.Add(-time.Duration(n%7) * time.Minute) // some messages arrive late
				want[at.Truncate(time.Minute)]++
				batch = append(batch, failed.Message{
					Queue: "orders", FailedQueue: "orders.failed", Attempts: 1, Error: "no", FirstFailed: at, LastFailed: at,
					Content: failed.Content{Body: fmt.Append(nil, n), Properties: failed.Properties{MessageID: fmt.Sprint(n)}},
				})
			}
			if _, err := archive.Add(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				record(t, one, Sources{Archive: archive})
			}
			if i%5 == 0 {
				record(t, two, Sources{Archive: archive})
			}
		}
		record(t, two, Sources{Archive: archive})
		record(t, one, Sources{Archive: archive})
		s := must(one.Series(t.Context(), "orders", Hour))(t)
		for _, p := range s.Points {
			if p.Arrived != want[p.Start] || p.Failures() != p.Arrived {
				t.Errorf("interval %s: got %d arrivals, want %d", p.Start, p.Arrived, want[p.Start])
			}
		}
		if got := s.Sum().Arrived; got != uint64(n) {
			t.Errorf("got %d arrivals, want %d", got, n)
		}
	})
}

// If totals are spread over intervals, the shares add up to the totals, for any start and duration.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &History{recorder: recorder{queues: map[string]bool{}}}
		var added Totals
		added.Succeeded = rapid.Uint64Range(0, maxTotal).Draw(t, "succeeded")
		added.Took.Buckets[3] = rapid.Uint64Range(0, 5).Draw(t, "took")
		from := noon.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "from")))
		to := from.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Minute)).Draw(t, "length")))
		sums := map[key]Totals{}
		h.spread(sums, "q", to, from, to, added)
		for _, r := range Ranges() {
			var sum Totals
			for k, v := range sums {
				if k.step == r.Step {
					sum = sum.Add(v)
					if start := time.Unix(k.start, 0); start.After(to) || !start.Add(r.Step).After(from) {
						t.Fatalf("interval must overlap %s to %s: got start %s", from, to, start)
					}
				}
			}
			if sum != added {
				t.Fatalf("step %s: got %+v, want %+v", r.Step, sum, added)
			}
		}
		if encoded, err := decode(added.encode()); err != nil || encoded != added {
			t.Fatalf("decode: got %+v, %v, want %+v", encoded, err, added)
		}
	})
}
