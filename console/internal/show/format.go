// Package show turns values into text for people: numbers, times, bodies, headers, charts
// and icons. It shows any bytes as text, never as markup, and bounds the size of the output.
package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Thousands writes a number with its digits in groups of three: 12 345 is 12,345.
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

// PerSecond writes a rate: two digits that mean something, and none where it is 0.
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

// Decimal writes a number as somebody gave it.
func Decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// ByteSize writes a number of bytes in the unit that leaves one to four digits.
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

// Ago says how long before now t was, in the unit that fits. console.js says it in
// the same words.
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

// Short writes a duration in its greatest unit, rounded down.
func Short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return strconv.Itoa(int(d/day)) + " d"
	case d >= time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	case d >= time.Minute:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d >= time.Second:
		return strconv.Itoa(int(d/time.Second)) + " s"
	}
	return strconv.Itoa(int(d/time.Millisecond)) + " ms"
}

// Exactly writes a duration in full, as it was configured: 300000 ms is 5 min.
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

// Plural is a number with its noun: 1 message, 2 messages.
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(n) + " " + one + "s"
}

// Visible is s as a person may see it: bytes that are no text, control characters,
// and characters that turn the direction of what follows are written out. Line
// breaks and tabs stay. What it returns is text still: templates escape it.
func Visible(s string) string {
	if !strings.ContainsFunc(s, Odd) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Odd(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case Odd(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// Odd reports whether a character would not be seen, or would change how others are.
func Odd(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return false
	case r == '\u200c' || r == '\u200d': // needed to write Persian, and many emoji
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Clip cuts s to n characters, at the end of one.
func Clip(s string, n int) string {
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// FirstLine is the first line of s that has something in it, and no longer than 300
// characters: what stands for an error where there is one line for it.
func FirstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return Clip(Visible(line), 300)
		}
	}
	return ""
}

// Exact is a time in full.
func Exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
