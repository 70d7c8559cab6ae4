package show

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// Each bar starts at the base line and fits into the chart, and a single failure is visible.
func TestBarChart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.Int64Range(0, 1_000_000), 1, 40).Draw(t, "counts")
		buckets := make([]store.Bucket, len(counts))
		for i, n := range counts {
			buckets[i] = store.Bucket{Start: time.Unix(int64(i)*3600, 0), N: n}
		}
		c := barChart(buckets, "Failures", "15:04", "15:04", 6)
		if len(c.Bars) != len(counts) || !c.Bars[len(counts)-1].Now {
			t.Fatalf("got %d bars, want %d", len(c.Bars), len(counts))
		}
		for i, b := range c.Bars {
			if b.Y < 0 || b.X < 0 || b.X+b.W > float64(c.Width) || b.Y+b.H > float64(c.Base)+0.2 || b.Y+b.H < float64(c.Base)-0.2 {
				t.Fatalf("bar %d with %d failures: got %+v, base line %d", i, counts[i], b, c.Base)
			}
			if (b.H > 0) != (counts[i] > 0) {
				t.Fatalf("bar for %d failures: got height %v", counts[i], b.H)
			}
		}
	})
}

func TestCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1e15).Draw(t, "n")
		c := ceiling(n)
		if c < n || c > max(2, 2*n) || c%2 != 0 {
			t.Fatalf("ceiling(%d): got %d, want at least %d", n, c, n)
		}
	})
}
