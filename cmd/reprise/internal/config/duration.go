package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// days is the one unit that Go's durations lack and delays need.
var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d`)

// spelt are units written out, and what is meant.
var spelt = regexp.MustCompile(`^ *([0-9]+) *(seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|milliseconds?|millis)$`)

// ParseDuration reads a duration as Go writes it ("500ms", "1h30m"), which may
// begin with days of 24 hours ("7d", "1d12h").
func ParseDuration(s string) (time.Duration, error) {
	text, whole := s, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		ns := n * float64(24*time.Hour)
		if err != nil || ns >= math.MaxInt64 {
			return 0, fmt.Errorf("%s is too long a time: 290 years are the most", quoted(s))
		}
		whole, text = time.Duration(ns), text[len(m[0]):]
	}
	if text == "" && whole == 0 && s == "" {
		return 0, errors.New("an empty text is no time: write one such as 30s, 5m or 1h30m")
	}
	if text == "" {
		return whole, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || (s != text && strings.HasPrefix(text, "-")) {
		if m := spelt.FindStringSubmatch(s); m != nil {
			return 0, fmt.Errorf("%s is no time: write %s", quoted(s), m[1]+abbreviate(m[2]))
		}
		return 0, fmt.Errorf("%s is no time: write one such as 500ms, 30s, 5m, 1h30m or 7d", quoted(s))
	}
	if d > math.MaxInt64-whole {
		return 0, fmt.Errorf("%s is too long a time: 290 years are the most", quoted(s))
	}
	return whole + d, nil
}

// timed reports whether a text is a time.
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

// FormatDuration writes a duration as short as [ParseDuration] reads it: 1h30m,
// 7d12h.
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
