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
