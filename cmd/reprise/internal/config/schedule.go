package config

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// Backoff is a schedule of delays as people write it, in the file or as flags.
//
//	initial, factor, max   grows: 1s, 2s, 4s, … 1h
//	initial, step, max     grows evenly: 10s, 20s, 30s, … 1h
//	fixed                  always the same
//	list                   one by one, then always the last
//
// Each may have a jitter. A schedule that grows has equal jitter unless it says
// otherwise; delays written one by one are kept as they are. Without any key it is
// the library's default.
type Backoff struct {
	Initial, Step, Max, Fixed time.Duration
	Factor                    float64
	List                      []time.Duration
	Jitter                    string

	Keys []string // those that were written: "initial", "factor", …
}

// jitters are the words for a jitter.
var jitters = []string{"none", "equal", "full", "decorrelated"}

// kinds are keys that make a schedule of some kind, and those of other kinds that
// can therefore not be there.
var kinds = []struct {
	key    string
	others []string
}{
	{"fixed", []string{"list", "initial", "factor", "step", "max"}},
	{"list", []string{"initial", "factor", "step", "max"}},
	{"step", []string{"factor"}},
}

// Misfit is a key whose value does not go with the others.
type Misfit struct{ Key, Text string }

// Schedule returns what was meant, nil for the default, or why that cannot be told. Texts call a key
// what name makes of it. A time that is zero although it was written is taken for
// a mistake that has been reported.
func (b Backoff) Schedule(name func(key string) string) (backoff.Backoff, []Misfit) {
	var all []Misfit
	misfit := func(key, format string, args ...any) {
		all = append(all, Misfit{key, fmt.Sprintf(format, args...)})
	}
	b.contradictions(name, misfit)
	if b.has("factor") && (!(b.Factor >= 1) || math.IsInf(b.Factor, 1)) {
		misfit("factor", "%s is %v: write 1 or more", name("factor"), b.Factor)
	}
	longerThanMax := func(key string, d time.Duration) {
		if b.Max > 0 && d > b.Max {
			misfit(key, "%s (%s) is longer than %s (%s): swap them, or raise %s", name(key), FormatDuration(d), name("max"), FormatDuration(b.Max), name("max"))
		}
	}
	longerThanMax("initial", b.Initial)
	longerThanMax("step", b.Step)
	if b.Max > 0 && b.Max < backoff.DefaultInitial && !b.has("initial") && !b.has("step") {
		misfit("max", "%s (%s) is shorter than the default of %s, %s: write %s too",
			name("max"), FormatDuration(b.Max), name("initial"), FormatDuration(backoff.DefaultInitial), name("initial"))
	}
	return b.build(), all
}

func (b Backoff) contradictions(name func(key string) string, misfit func(key, format string, args ...any)) {
	if b.Jitter != "" && !slices.Contains(jitters, b.Jitter) {
		misfit("jitter", "%s cannot be %s: write %s", name("jitter"), quoted(b.Jitter), oneOfThese(jitters))
	}
	for _, kind := range kinds {
		if b.Jitter == "decorrelated" && b.has(kind.key) {
			misfit("jitter", "%s: decorrelated is a schedule of its own, with %s, %s and %s: remove %s, or write full",
				name("jitter"), name("initial"), name("factor"), name("max"), name(kind.key))
			return
		}
		for _, other := range kind.others {
			if b.has(kind.key) && b.has(other) {
				misfit(other, "%s and %s are of different schedules: keep one", name(kind.key), name(other))
				return
			}
		}
	}
}

func (b Backoff) has(key string) bool { return slices.Contains(b.Keys, key) }

// build makes the schedule, supposing that it makes sense.
func (b Backoff) build() backoff.Backoff {
	var s backoff.Backoff
	jitter := "equal"
	switch {
	case len(b.Keys) == 0:
		return nil
	case b.has("fixed"):
		s, jitter = backoff.Fixed(b.Fixed), "none"
	case b.has("list"):
		s, jitter = backoff.List(b.List), "none"
	case b.has("step"):
		s = backoff.Linear{Initial: b.Initial, Step: b.Step, Max: b.Max}
	default:
		s = backoff.Exponential{Initial: b.Initial, Factor: b.Factor, Max: b.Max}
	}
	if b.Jitter != "" {
		jitter = b.Jitter
	}
	switch jitter {
	case "equal":
		return backoff.Equal(s)
	case "full":
		return backoff.Full(s)
	case "decorrelated":
		return backoff.Decorrelated{Initial: b.Initial, Factor: b.Factor, Max: b.Max}
	}
	return s
}
