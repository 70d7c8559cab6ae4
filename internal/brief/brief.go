// Package brief formats durations, excerpts and names for users. It imports the standard library only.
package brief

import (
	"strings"
	"time"
	"unicode/utf8"
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

// omission replaces the middle of a text in Excerpt.
const omission = " … "

// Excerpt returns text if it has at most n bytes. Otherwise it returns the first third and the end of the text, at most n
// bytes, because both the beginning and the end of an output can contain the cause of a failure.
func Excerpt(text string, n int) string {
	if len(text) <= n {
		return text
	}
	if n <= len(omission) {
		return strings.ToValidUTF8(text[:max(n, 0)], "")
	}
	head := (n - len(omission)) / 3
	tail := len(text) - (n - len(omission) - head)
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + omission + text[tail:]
}
