package history

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkAll reads the complete histories of 50 queues.
func BenchmarkAll(b *testing.B) {
	db := openSQLite(b)
	h := db.history(b)
	for i := range 50 {
		w := newWorker(fmt.Sprint(i), fmt.Sprint("queue-", i), db.now.Add(-8*24*time.Hour))
		for j := range 12 {
			w.works(1e9, 1e6, time.Millisecond<<j)
		}
		h.Observe(w.status(db.now))
	}
	record(b, h, Sources{})
	for _, r := range Ranges() {
		b.Run(r.Name, func(b *testing.B) {
			for b.Loop() {
				if all := must(h.All(b.Context(), r))(b); len(all) != 50 {
					b.Fatalf("got %d series, want 50", len(all))
				}
			}
		})
		b.Run(r.Name+"/one", func(b *testing.B) {
			for b.Loop() {
				must(h.Series(b.Context(), "queue-7", r))(b)
			}
		})
	}
}
