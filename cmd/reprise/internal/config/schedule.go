package config

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/brief"
)

// Backoff is a schedule of delays, as written in the file or in flags.
//
//	initial, factor, max   grows: 1s, 2s, 4s, … 1h
//	initial, step, max     grows evenly: 10s, 20s, 30s, … 1h
//	fixed                  always the same
//	list                   the delays in order, then always the last
//
// Each schedule may have a jitter. The default is equal jitter for a growing schedule, and no jitter for fixed and
// list. A Backoff without keys is the default of the library.
type Backoff struct {
	Initial, Step, Max, Fixed time.Duration
	Factor                    float64
	List                      []time.Duration
	Jitter                    string

	Keys []string // keys that were written: "initial", "factor", …
}

// jitters lists the names of the jitters.
var jitters = []string{"none", "equal", "full", "decorrelated"}

// kinds lists the keys that determine the kind of a schedule, with the conflicting keys of other kinds.
var kinds = []struct {
	key    string
	others []string
}{
	{"fixed", []string{"list", "initial", "factor", "step", "max"}},
	{"list", []string{"initial", "factor", "step", "max"}},
	{"step", []string{"factor"}},
}

// Conflict is a key whose value is invalid or conflicts with other keys.
type Conflict struct{ Key, Text string }

// Schedule returns the schedule, or nil for the default, or the conflicts that prevent a schedule. Conflicts use
// name(key) as the name of a key. Schedule ignores a key with a zero duration, because the reader of the key has
// reported it.
func (b Backoff) Schedule(name func(key string) string) (backoff.Backoff, []Conflict) {
	var all []Conflict
	conflict := func(key, format string, args ...any) {
		all = append(all, Conflict{key, fmt.Sprintf(format, args...)})
	}
	b.contradictions(name, conflict)
	if b.has("factor") && (!(b.Factor >= 1) || math.IsInf(b.Factor, 1)) {
		conflict("factor", "%s must be at least 1: got %v", name("factor"), b.Factor)
	}
	longerThanMax := func(key string, d time.Duration) {
		if b.Max > 0 && d > b.Max {
			conflict(key, "%s (%s) is longer than %s (%s): swap them, or raise %s", name(key), FormatDuration(d), name("max"), FormatDuration(b.Max), name("max"))
		}
	}
	longerThanMax("initial", b.Initial)
	longerThanMax("step", b.Step)
	if b.Max > 0 && b.Max < backoff.DefaultInitial && !b.has("initial") && !b.has("step") {
		conflict("max", "%s (%s) is shorter than the default of %s, %s; write %s too",
			name("max"), FormatDuration(b.Max), name("initial"), FormatDuration(backoff.DefaultInitial), name("initial"))
	}
	return b.build(), all
}

func (b Backoff) contradictions(name func(key string) string, conflict func(key, format string, args ...any)) {
	if b.Jitter != "" && !slices.Contains(jitters, b.Jitter) {
		conflict("jitter", "%s must be %s: got %s", name("jitter"), oneOfThese(jitters), brief.Quoted(b.Jitter))
	}
	for _, kind := range kinds {
		if b.Jitter == "decorrelated" && b.has(kind.key) {
			conflict("jitter", "%s: decorrelated requires %s, %s and %s only: remove %s, or write full",
				name("jitter"), name("initial"), name("factor"), name("max"), name(kind.key))
			return
		}
		for _, other := range kind.others {
			if b.has(kind.key) && b.has(other) {
				conflict(other, "%s and %s belong to different schedules: keep one", name(kind.key), name(other))
				return
			}
		}
	}
}

func (b Backoff) has(key string) bool { return slices.Contains(b.Keys, key) }

// build returns the schedule of a valid Backoff.
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
