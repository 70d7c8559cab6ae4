package terminal

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Roughly formats a duration, rounded to one unit: 45s, 12m, 47h, 3d, 2y.
func Roughly(d time.Duration) string {
	n, unit := brief.Rough(max(d, 0))
	switch unit {
	case "ms":
		return "0s"
	case "min":
		unit = "m"
	}
	return fmt.Sprintf("%d%s", n, unit)
}

// Ago formats t relative to now, such as "5m ago" or "in 5m". The result for a zero time is "-".
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < -time.Second:
		return "in " + Roughly(t.Sub(now)) // -d can exceed a Duration
	case d < time.Second:
		return "now"
	default:
		return Roughly(d) + " ago"
	}
}
