package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// A search returns all messages with the words, in order and without duplicates, even for frequent words. The archive
// contains more messages than a page reads.
func TestSearchInManyMessages(t *testing.T) {
	const n = 6600
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		start := c.now().Add(-n * time.Second)
		var arrivals []failed.Arrived
		for i := range n {
			var text strings.Builder
			text.WriteString(fmt.Sprintf("every message%d", i))
			for word, has := range map[string]bool{
				"third": i%3 == 0, "sixtieth": i%60 == 0, "rare": i%2001 == 0, "new": i > n-300, "old": i < 3000, "fifth": i%5 == 0,
			} {
				if has {
					text.WriteString(" " + word)
				}
			}
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{
				FailedQueue: fmt.Sprintf("q%d.failed", i%7/6), LastFailed: start.Add(time.Duration(i) * time.Second),
				Error: "it failed", Attempts: i%10 + 1, Content: failed.Content{Body: []byte(text.String())},
			}})
		}
		var all []failed.ID
		for some := range slices.Chunk(arrivals, 1000) { // in several transactions, because each has a time limit
			all = append(all, value(a.Ingest(t.Context(), some))(t)...)
		}
		value(a.Discard(t.Context(), failed.Filter{Text: "fifth"}, "so", "me"))(t)
		discarded, waiting := []failed.State{failed.Discarded}, []failed.State{failed.Failed}
		for _, f := range []failed.Filter{{MinAttempts: 1}, {Text: "every"}} {
			there, total, err := replay.Preview(t.Context(), a, failed.Plan{Filter: f}, replay.Routing{})
			if len(there) == 0 || total.N == 0 || !total.More || err != nil {
				t.Errorf("%s: got preview %v, %+v, %v, want messages and more", f, there, total, err)
			}
		}
		for _, x := range []struct {
			f   failed.Filter
			has func(i int) bool
		}{
			{failed.Filter{Text: "every"}, func(int) bool { return true }},
			{failed.Filter{Text: "third"}, func(i int) bool { return i%3 == 0 }},
			{failed.Filter{Text: "third", Queue: "q1"}, func(i int) bool { return i%3 == 0 && i%7 == 6 }},
			{failed.Filter{Text: "sixtieth"}, func(i int) bool { return i%60 == 0 }},
			{failed.Filter{Text: "sixtieth", MinAttempts: 2}, func(int) bool { return false }},
			{failed.Filter{Text: "rare"}, func(i int) bool { return i%2001 == 0 }},
			{failed.Filter{Text: "rare", States: waiting}, func(i int) bool { return i%2001 == 0 && i%5 > 0 }},
			{failed.Filter{Text: "new"}, func(i int) bool { return i > n-300 }},
			{failed.Filter{Text: "old"}, func(i int) bool { return i < 3000 }},
			{failed.Filter{Text: "old", States: discarded}, func(i int) bool { return i < 3000 && i%5 == 0 }},
			{failed.Filter{Text: "old", MaxAttempts: 2}, func(i int) bool { return i < 3000 && i%10 < 2 }},
			{failed.Filter{Text: "old new"}, func(int) bool { return false }},
			{failed.Filter{Text: "every", States: []failed.State{failed.Replayed}}, func(int) bool { return false }},
			{failed.Filter{Text: "third", Group: 1, Until: start.Add(1000 * time.Second)}, func(i int) bool { return i%3 == 0 && i%7 < 6 && i < 1000 }},
			{failed.Filter{Error: "t fail", MinAttempts: 10}, func(i int) bool { return i%10 == 9 }},
			{failed.Filter{Queue: "q1", MaxAttempts: 1}, func(i int) bool { return i%7 == 6 && i%10 == 0 }},
		} {
			var want []failed.ID
			for i := n - 1; i >= 0; i-- {
				if x.has(i) {
					want = append(want, all[i])
				}
			}
			var got []failed.ID
			for p := (store.Page{Size: 150}); ; {
				page, next, err := a.List(t.Context(), x.f, p)
				check(t, err)
				got = append(got, ids(page)...)
				if p.After = next; next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%+v: got %d messages in all pages, want %d", x.f, len(got), len(want))
			}
			total := value(a.Count(t.Context(), x.f))(t)
			if most := int64(len(want)); total.N > most || total.N < most && !total.More || total.N == 0 && most > 0 && !total.More {
				t.Errorf("%+v: got count %+v, want %d or more of them", x.f, total, most)
			}
			if len(want) < 200 && x.f.MinAttempts+x.f.MaxAttempts == 0 && x.f.Text != "every" && total.More {
				t.Errorf("%+v: got count %+v, want an exact count", x.f, total)
			}
		}
	})
}
