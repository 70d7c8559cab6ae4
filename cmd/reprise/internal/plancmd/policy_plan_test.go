package plancmd

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

// policies draws valid policies for `reprise policy`.
func policies() *rapid.Generator[reprise.Policy] {
	span := rapid.Map(rapid.OneOf(rapid.Int64Range(0, int64(time.Minute)), rapid.Int64Range(0, int64(100*time.Hour))),
		func(n int64) time.Duration { return time.Duration(n).Truncate(time.Millisecond) }) // wait queues round to milliseconds
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
	return newPlan(s)
}

// The attempts of a worker are within the plan, for any jitter.
func TestPlanIncludesAllDelays(t *testing.T) {
	failure := errors.New("always")
	rapid.Check(t, func(t *rapid.T) {
		policy := policies().Draw(t, "policy")
		p := planOf(policy)
		// The plan contains the delays of the wait queues, which are rounded up to whole milliseconds.
		slack := time.Duration(len(p.Attempts)) * time.Millisecond
		within := func(d time.Duration, w window) bool { return d >= w.low-slack && d <= w.high+slack }

		now := time.Duration(0)
		for attempt := 1; ; attempt++ {
			if attempt > len(p.Attempts) {
				t.Fatalf("got attempt %d, want at most %d attempts, as planned", attempt, len(p.Attempts))
			}
			if a := p.Attempts[attempt-1]; a.Attempt != attempt || !within(now, a.At) {
				t.Fatalf("attempt %d at %s is not within the plan %+v", attempt, now, a)
			}
			d := policy.Decide(failure, attempt, now)
			if d.Retry {
				now += d.Delay
				continue
			}
			if !within(now, p.Parked.At) || attempt < p.Parked.Attempts.Min || attempt > p.Parked.Attempts.Max {
				t.Fatalf("parked after attempt %d at %s, planned %+v up to attempt %d", attempt, now, p.Parked, p.Parked.Attempts.Max)
			}
			return
		}
	})
}

func TestPlanIsOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := policies().Draw(t, "policy")
		p := planOf(policy)
		var before plannedAttempt
		for _, a := range p.Attempts {
			switch {
			case a.At.low < before.At.low || a.At.high < before.At.high || a.At.low > a.At.high:
				t.Fatalf("attempts are not in order: %+v after %+v", a, before)
			case policy.GiveUpAfter > 0 && a.At.high > policy.GiveUpAfter:
				t.Fatalf("%+v is after GiveUpAfter %s", a, policy.GiveUpAfter)
			case a.At.high > p.Parked.At.high:
				t.Fatalf("%+v is after the end of parking, %s", a, p.Parked.At.high)
			case before.Perhaps && !a.Perhaps, a.Perhaps != (a.Attempt > p.Parked.Attempts.Min):
				t.Fatalf("%+v: parking starts after attempt %d", a, p.Parked.Attempts.Min)
			}
			before = a
		}
		if before.Attempt != p.Parked.Attempts.Max || p.Parked.Attempts.Max > policy.MaxAttempts {
			t.Fatalf("last attempt: got %d, want %d, the attempt of the last parking, and at most %d", before.Attempt, p.Parked.Attempts.Max, policy.MaxAttempts)
		}
	})
}

func TestPlanDoesNotOverflow(t *testing.T) {
	s := subject{policy: reprise.Policy{MaxAttempts: 5}, delay: func(int) window { return window{math.MaxInt64 / 2, math.MaxInt64} }}
	p := newPlan(s)
	if end := p.Attempts[4].At; end.low != math.MaxInt64 || end.high != math.MaxInt64 {
		t.Errorf("last attempt: got %v, want the maximum", end)
	}
	if text := policyText(s, p, time.Time{}); !strings.Contains(text, "centuries") {
		t.Errorf("got\n%s", text)
	}
}

func TestScheduleTableFits(t *testing.T) {
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		p := planOf(policies().Draw(t, "policy"))
		for _, s := range []time.Time{{}, start} {
			for l := range strings.SplitSeq(policyTable(p, s), "\n") {
				if n := utf8.RuneCountInString(l); n > 80 {
					t.Fatalf("line has %d columns, want at most 80:\n%s", n, l)
				}
			}
		}
	})
}
