// Package show formats values for pages: numbers, times, bodies, headers, charts and icons. It formats all bytes as
// text, never as markup, and limits the size of the output.
package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Thousands formats n with commas between groups of three digits: 12,345.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if s[0] == '-' {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// PerSecond formats a rate: as "0" or "<0.1", with one decimal place below 10, and otherwise as an integer.
func PerSecond(r float64) string {
	switch {
	case r <= 0 || math.IsNaN(r):
		return "0"
	case r < 0.1:
		return "<0.1"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return Thousands(int64(math.Round(r)))
}

// Decimal formats f with the fewest digits that represent it exactly.
func Decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ByteSize formats a number of bytes in the largest of the units B, KiB, MiB and GiB in which the number is at least 1.
func ByteSize(n int) string {
	if n < 1024 {
		return strconv.Itoa(n) + " B"
	}
	v, unit := float64(n)/1024, "KiB"
	for _, next := range []string{"MiB", "GiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, next
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + unit
}

// Ago formats the time between t and now in the largest suitable unit, or returns "just now" for less than 5 seconds.
// The function ago in console.js must return equal strings.
func Ago(now, t time.Time) string {
	d := now.Sub(t).Round(time.Second)
	text, later := Short(d.Abs()), d < 0
	switch {
	case d.Abs() < 5*time.Second:
		return "just now"
	case later:
		return "in " + text
	}
	return text + " ago"
}

// Due is like Ago, but if t is within the next 5 seconds, it returns "in less than 5 s" instead of "just now".
func Due(now, t time.Time) string {
	if d := t.Sub(now).Round(time.Second); d > 0 && d < 5*time.Second {
		return "in less than 5 s"
	}
	return Ago(now, t)
}

// Short formats a duration, rounded to one unit.
func Short(d time.Duration) string {
	n, unit := brief.Rough(d)
	return fmt.Sprintf("%d %s", n, unit)
}

// Exactly formats a configured duration without rounding: 300000 ms becomes 5 min.
func Exactly(d time.Duration) string {
	const day = 24 * time.Hour
	var parts []string
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / u.length; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
			d -= n * u.length
		}
	}
	if parts == nil {
		return "0 s"
	}
	return strings.Join(parts, " ")
}

// Plural formats a number with its noun: 1 message, 2 messages.
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + one + "s"
}

// FirstLine returns the first line of s that is not blank, cut after 300 characters. In lists, it summarizes an error.
func FirstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return brief.Clip(brief.Visible(line), 300)
		}
	}
	return ""
}

// Exact formats t in UTC, with the date and seconds.
func Exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
