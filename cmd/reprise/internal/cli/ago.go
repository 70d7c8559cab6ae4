package cli

import (
	"fmt"
	"time"
)

// roughly formats a duration in a single unit, rounded down: 45s, 12m, 47h, 3d, 2y.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 1000*day:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dy", d/(365*day))
}

// ago formats t relative to now, such as "5m ago" or "in 5m". The result for a zero time is "-".
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < -time.Second:
		return "in " + roughly(-d)
	case d < time.Second:
		return "now"
	default:
		return roughly(d) + " ago"
	}
}
