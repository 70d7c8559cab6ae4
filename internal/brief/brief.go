// Package brief formats durations for users. It imports the standard library only.
package brief

import (
	"strings"
	"time"
)

// Duration formats d like [time.Duration.String], but without trailing zero units: 1h, not 1h0m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Rough rounds a duration to a number of one unit: ms, s, min, h (up to 2 days), d (up to 1000 days) or y.
func Rough(d time.Duration) (number int64, unit string) {
	const day = 24 * time.Hour
	for _, u := range []struct {
		unit, limit time.Duration
		name        string
	}{{time.Millisecond, time.Second, "ms"}, {time.Second, time.Minute, "s"}, {time.Minute, time.Hour, "min"}, {time.Hour, 2 * day, "h"}, {day, 1000 * day, "d"}} {
		if rounded := d.Round(u.unit); rounded < u.limit {
			return int64(rounded / u.unit), u.name
		}
	}
	return int64(d.Round(365*day) / (365 * day)), "y"
}
