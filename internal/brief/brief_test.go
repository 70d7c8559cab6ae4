package brief

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The rounded duration differs from the duration by at most half of its unit, and is less than the next unit.
func TestRoughRounds(t *testing.T) {
	units := map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "y": 365 * 24 * time.Hour,
	}
	limits := map[string]int64{"ms": 999, "s": 59, "min": 59, "h": 47, "d": 999, "y": 300}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d") >> rapid.IntRange(0, 60).Draw(t, "shift"))
		n, unit := Rough(d)
		if diff := (d - time.Duration(n)*units[unit]).Abs(); diff > units[unit]/2 {
			t.Fatalf("Rough(%v): got %d %s, which differs by %v", d, n, unit, diff)
		}
		if n > limits[unit] {
			t.Fatalf("Rough(%v): got %d %s, want a larger unit", d, n, unit)
		}
	})
}
