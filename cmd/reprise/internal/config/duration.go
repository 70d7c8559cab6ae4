package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// days matches a leading number of days, because Go durations have no unit for days.
var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d`)

// spelledOut matches durations whose unit is written out, so that an error can suggest a correction.
var spelledOut = regexp.MustCompile(`^ *([0-9]+) *(seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|milliseconds?|millis)$`)

// ParseDuration parses a Go duration ("500ms", "1h30m"). A number of days, of 24 hours each, may precede it or
// replace it ("1d12h", "7d").
func ParseDuration(s string) (time.Duration, error) {
	text, whole := s, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		ns := n * float64(24*time.Hour)
		if err != nil || ns >= math.MaxInt64 {
			return 0, fmt.Errorf("%s exceeds the maximum of 290 years", brief.Quoted(s))
		}
		whole, text = time.Duration(ns), text[len(m[0]):]
	}
	if text == "" && whole == 0 && s == "" {
		return 0, errors.New("duration must not be empty (examples: 30s, 5m, 1h30m)")
	}
	if text == "" {
		return whole, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || (s != text && strings.HasPrefix(text, "-")) {
		if m := spelledOut.FindStringSubmatch(s); m != nil {
			return 0, fmt.Errorf("%s is not a duration (write %s)", brief.Quoted(s), m[1]+abbreviate(m[2]))
		}
		return 0, fmt.Errorf("%s is not a duration (examples: 500ms, 30s, 5m, 1h30m, 7d)", brief.Quoted(s))
	}
	if d > math.MaxInt64-whole {
		return 0, fmt.Errorf("%s exceeds the maximum of 290 years", brief.Quoted(s))
	}
	return whole + d, nil
}

// timed reports whether s is a duration.
func timed(s string) bool {
	_, err := ParseDuration(s)
	return err == nil
}

func abbreviate(unit string) string {
	if strings.HasPrefix(unit, "milli") {
		return "ms"
	}
	return unit[:1]
}

// FormatDuration formats d for [ParseDuration], with days and without trailing zero units: 1h30m, 7d12h.
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d < day {
		return brief.Duration(d)
	}
	s := fmt.Sprintf("%dd", d/day)
	if rest := d % day; rest > 0 {
		s += brief.Duration(rest)
	}
	return s
}

// units are the permitted suffixes of a size.
var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// ParseSize parses a number of bytes: 500000000, 256MiB, 2GiB.
func ParseSize(s string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > (1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%s is not a size (examples: 256MiB, 2GiB, or a number of bytes)", brief.Quoted(s))
}

// FormatSize formats a number of bytes in the notation of ParseSize.
func FormatSize(n int64) string {
	for _, u := range slices.Backward(units[:len(units)-1]) {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}
