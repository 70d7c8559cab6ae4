package cli

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// policies draws what `reprise schedule` may be asked to show.
func policies() *rapid.Generator[reprise.Policy] {
	span := rapid.Map(rapid.OneOf(rapid.Int64Range(0, int64(time.Minute)), rapid.Int64Range(0, int64(100*time.Hour))),
		func(n int64) time.Duration { return time.Duration(n).Truncate(time.Millisecond) }) // or wait queues round it
	return rapid.Custom(func(t *rapid.T) reprise.Policy {
		var b backoff.Backoff
		switch initial := span.Draw(t, "initial"); rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			b = backoff.Fixed(initial)
		case 1:
			b = backoff.Exponential{Initial: initial, Factor: rapid.Float64Range(1, 5).Draw(t, "factor"), Max: initial + 100*time.Hour}
		case 2:
			b = backoff.List(rapid.SliceOfN(span, 1, 6).Draw(t, "list"))
		case 3:
			b = backoff.Decorrelated{Initial: initial, Max: initial + time.Hour}
		}
		return reprise.Policy{
			MaxAttempts: rapid.IntRange(1, 40).Draw(t, "attempts"),
			GiveUpAfter: rapid.OneOf(rapid.Just(time.Duration(0)), span).Draw(t, "give up after"),
			Backoff:     backoff.Jitter{Backoff: b, Spread: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "spread")},
		}
	})
}

func planOf(p reprise.Policy) plan {
	s := subjectOf(reprise.WorkerConfig{Queue: "q", Policy: p})
	return newPlan(s.delay, s.policy.MaxAttempts, s.policy.GiveUpAfter)
}

// Whatever the jitter, a worker does what the plan says.
func TestPlanHoldsEveryMessage(t *testing.T) {
	failure := errors.New("always")
	rapid.Check(t, func(t *rapid.T) {
		policy := policies().Draw(t, "policy")
		p := planOf(policy)
		// A wait queue rounds a delay up to milliseconds.
		slack := time.Duration(len(p.attempts)) * time.Millisecond
		within := func(d time.Duration, w window) bool { return d >= w.low-slack && d <= w.high+slack }

		now := time.Duration(0)
		for attempt := 1; ; attempt++ {
			if attempt > len(p.attempts) {
				t.Fatalf("attempt %d is not in the plan of %d", attempt, len(p.attempts))
			}
			if a := p.attempts[attempt-1]; a.attempt != attempt || !within(now, a.at) {
				t.Fatalf("attempt %d after %s, planned is %+v", attempt, now, a)
			}
			d := policy.Decide(failure, attempt, now)
			if d.Retry {
				now += d.Delay
				continue
			}
			if !within(now, p.parked.at) || attempt < p.parked.attempt || attempt > p.last {
				t.Fatalf("parked after attempt %d and %s, planned is %+v up to attempt %d", attempt, now, p.parked, p.last)
			}
			return
		}
	})
}

func TestPlanIsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := policies().Draw(t, "policy")
		p := planOf(policy)
		var before planned
		for _, a := range p.attempts {
			switch {
			case a.at.low < before.at.low || a.at.high < before.at.high || a.at.low > a.at.high:
				t.Fatalf("%+v comes after %+v", a, before)
			case policy.GiveUpAfter > 0 && a.at.high > policy.GiveUpAfter:
				t.Fatalf("%+v is later than %s", a, policy.GiveUpAfter)
			case a.at.high > p.end():
				t.Fatalf("%+v is after the end, %s", a, p.end())
			case before.perhaps && !a.perhaps, a.perhaps != (a.attempt > p.parked.attempt):
				t.Fatalf("%+v, and parking begins after attempt %d", a, p.parked.attempt)
			}
			before = a
		}
		if before.attempt != p.last || p.last > policy.MaxAttempts {
			t.Fatalf("%d attempts of %d, the last one is %d", before.attempt, policy.MaxAttempts, p.last)
		}
	})
}

func TestTimesBeyondAllTime(t *testing.T) {
	p := newPlan(func(int) window { return window{math.MaxInt64 / 2, math.MaxInt64} }, 5, 0)
	if end := p.attempts[4].at; end.low != math.MaxInt64 || end.high != math.MaxInt64 {
		t.Errorf("the last attempt is at %v", end)
	}
	if text := scheduleText(subject{policy: reprise.Policy{MaxAttempts: 5}}, p, time.Time{}, 80); !strings.Contains(text, "centuries") {
		t.Errorf("got\n%s", text)
	}
}

// Nothing sticks out of a terminal, nor is one label of the axis in the way of
// another.
func TestPlotFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, width := policies().Draw(t, "policy"), rapid.IntRange(40, 120).Draw(t, "width")
		p := planOf(policy)
		text := plot(p, width)
		if (p.end() == 0) != (text == "") {
			t.Fatalf("it ends after %s:\n%s", p.end(), text)
		}
		if text == "" {
			return
		}
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if want := len(p.shown()) + 2; len(lines) != want {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), want, text)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > width {
				t.Fatalf("%d of %d columns:\n%s", n, width, text)
			}
		}
		a := newAxis(p, width-plotMargin)
		labels := strings.Fields(lines[len(lines)-1])
		if len(labels) != len(a.ticks) || labels[0] != "0s" {
			t.Fatalf("labels run into one another:\n%s", text)
		}
	})
}

func TestTableFits(t *testing.T) {
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		p := planOf(policies().Draw(t, "policy"))
		for _, s := range []time.Time{{}, start} {
			for l := range strings.SplitSeq(table(p, s), "\n") {
				if n := utf8.RuneCountInString(l); n > 80 {
					t.Fatalf("%d columns:\n%s", n, l)
				}
			}
		}
	})
}
