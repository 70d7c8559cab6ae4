package console

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// thousands writes a number with its digits in groups of three: 12 345 is 12,345.
func thousands(n int64) string {
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

// perSecond writes a rate: two digits that mean something, and none where it is 0.
func perSecond(r float64) string {
	switch {
	case r <= 0 || math.IsNaN(r):
		return "0"
	case r < 0.1:
		return "<0.1"
	case r < 10:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return thousands(int64(math.Round(r)))
}

// decimal writes a number as somebody gave it.
func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// byteSize writes a number of bytes in the unit that leaves one to four digits.
func byteSize(n int) string {
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

// ago says how long before now t was, in the unit that fits. console.js says it in
// the same words.
func ago(now, t time.Time) string {
	d := now.Sub(t).Round(time.Second)
	text, later := short(d.Abs()), d < 0
	switch {
	case d.Abs() < 5*time.Second:
		return "just now"
	case later:
		return "in " + text
	}
	return text + " ago"
}

// short writes a duration in its greatest unit, rounded down.
func short(d time.Duration) string {
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

// exactly writes a duration in full, as it was configured: 300000 ms is 5 min.
func exactly(d time.Duration) string {
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

// plural is a number with its noun: 1 message, 2 messages.
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + one + "s"
}

// visible is s as a person may see it: bytes that are no text, control characters,
// and characters that turn the direction of what follows are written out. Line
// breaks and tabs stay. What it returns is text still: templates escape it.
func visible(s string) string {
	if !strings.ContainsFunc(s, odd) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case odd(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case odd(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// odd reports whether a character would not be seen, or would change how others are.
func odd(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return false
	case r == '\u200c' || r == '\u200d': // needed to write Persian, and many emoji
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// clip cuts s to n characters, at the end of one.
func clip(s string, n int) string {
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// firstLine is the first line of s that has something in it, and no longer than 300
// characters: what stands for an error where there is one line for it.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return clip(visible(line), 300)
		}
	}
	return ""
}
