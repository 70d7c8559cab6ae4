package backofftest

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/backoff"
)

// attempts generates typical and extreme attempt numbers.
func attempts() *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(-3, 200), rapid.Int(), rapid.SampledFrom([]int{math.MaxInt, math.MinInt}))
}

func durations() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(
		rapid.Int64Range(0, int64(100*time.Hour)),
		rapid.Int64Range(0, math.MaxInt64),
	), func(n int64) time.Duration { return time.Duration(n) })
}

// anyDuration generates durations, including negative durations.
func anyDuration() *rapid.Generator[time.Duration] {
	return rapid.OneOf(durations(), rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }))
}

func factors() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(1, 4), rapid.Float64(), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1)}))
}

// growingSchedule generates schedules whose delays do not decrease, with any field values.
func growingSchedule() *rapid.Generator[backoff.Backoff] {
	return rapid.OneOf(
		rapid.Map(anyDuration(), func(d time.Duration) backoff.Backoff { return backoff.Fixed(d) }),
		rapid.Custom(func(t *rapid.T) backoff.Backoff {
			return backoff.Exponential{Initial: anyDuration().Draw(t, "initial"), Factor: factors().Draw(t, "factor"), Max: anyDuration().Draw(t, "max")}
		}),
		rapid.Custom(func(t *rapid.T) backoff.Backoff {
			return backoff.Linear{Initial: anyDuration().Draw(t, "initial"), Step: anyDuration().Draw(t, "step"), Max: anyDuration().Draw(t, "max")}
		}),
	)
}

// anySchedule generates schedules of all types, with any field values. Their random source always returns r.
func anySchedule(r float64) *rapid.Generator[backoff.Backoff] {
	random := func() float64 { return r }
	plain := rapid.OneOf(
		growingSchedule(),
		rapid.Map(rapid.SliceOf(anyDuration()), func(l []time.Duration) backoff.Backoff { return backoff.List(l) }),
		rapid.Custom(func(t *rapid.T) backoff.Backoff {
			return backoff.Decorrelated{
				Initial: anyDuration().Draw(t, "initial"), Factor: factors().Draw(t, "factor"), Max: anyDuration().Draw(t, "max"), Rand: random,
			}
		}),
	)
	return rapid.OneOf(plain, rapid.Custom(func(t *rapid.T) backoff.Backoff {
		return backoff.Jitter{
			Backoff: rapid.OneOf(plain, rapid.Just[backoff.Backoff](nil)).Draw(t, "inner"),
			Spread:  rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64(), rapid.Just(math.NaN())).Draw(t, "spread"),
			Rand:    random,
		}
	}))
}

// maxDelay returns the maximum delay of a schedule according to its fields.
func maxDelay(b backoff.Backoff) time.Duration {
	longest := func(initial, limit time.Duration) time.Duration {
		if limit == 0 {
			limit = max(backoff.DefaultMax, initial)
		}
		return max(0, limit)
	}
	switch b := b.(type) {
	case backoff.Fixed:
		return max(0, time.Duration(b))
	case backoff.Exponential:
		return longest(b.Initial, b.Max)
	case backoff.Linear:
		if b.Initial == 0 {
			b.Initial = b.Step
		}
		return longest(b.Initial, b.Max)
	case backoff.Decorrelated:
		return longest(b.Initial, b.Max)
	case backoff.List:
		limit := time.Duration(0)
		for _, d := range b {
			limit = max(limit, d)
		}
		return limit
	case backoff.Jitter:
		if b.Backoff == nil {
			return backoff.DefaultMax
		}
		return maxDelay(b.Backoff)
	}
	panic("unknown schedule")
}

// The bounds also apply to schedules that Validate rejects.
func TestDelayStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anySchedule(rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")).Draw(t, "schedule")
		attempt := attempts().Draw(t, "attempt")
		if d := b.Delay(attempt); d < 0 || d > maxDelay(b) {
			t.Fatalf("%#v: delay %d after attempt %d is outside [0, %d]", b, d, attempt, maxDelay(b))
		}
	})
}

func TestDelayWithoutJitterDoesNotDecrease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := growingSchedule().Draw(t, "schedule")
		attempt := min(attempts().Draw(t, "attempt"), math.MaxInt-1)
		if d, next := b.Delay(attempt), b.Delay(attempt+1); next < d {
			t.Fatalf("%#v: delay decreased from %d to %d after attempt %d", b, d, next, attempt)
		}
	})
}

func TestRangeContainsDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anySchedule(rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")).Draw(t, "schedule")
		attempt := attempts().Draw(t, "attempt")
		low, high := backoff.Range(b, attempt)
		if low < 0 || low > high || high > maxDelay(b) {
			t.Fatalf("%#v: got range [%d, %d] after attempt %d, want at most %d", b, low, high, attempt, maxDelay(b))
		}
		// A float64 has 53 significant bits, so the delay may differ by one part in 2^50.
		d := b.Delay(attempt)
		if slack := high>>50 + 1; d < low-slack || d > high {
			t.Fatalf("%#v: delay %d after attempt %d is outside its range [%d, %d]", b, d, attempt, low, high)
		}
	})
}

func TestRangeWithoutJitterEqualsDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, attempt := growingSchedule().Draw(t, "schedule"), attempts().Draw(t, "attempt")
		if low, high := backoff.Range(b, attempt); low != high || low != b.Delay(attempt) {
			t.Fatalf("%#v: got range [%d, %d] after attempt %d, want delay %d", b, low, high, attempt, b.Delay(attempt))
		}
	})
}

func TestDelayGrowsByStepAndFactor(t *testing.T) {
	const day = 24 * time.Hour
	validDuration := rapid.Map(rapid.Int64Range(1, int64(day)), func(n int64) time.Duration { return time.Duration(n) })
	rapid.Check(t, func(t *rapid.T) {
		initial, attempt := validDuration.Draw(t, "initial"), rapid.IntRange(1, 1000).Draw(t, "attempt")
		step := validDuration.Draw(t, "step")
		if d, want := (backoff.Linear{Initial: initial, Step: step, Max: 10000 * day}).Delay(attempt), initial+time.Duration(attempt-1)*step; d != want {
			t.Fatalf("linear: got %s after attempt %d, want %s", d, attempt, want)
		}
		e := backoff.Exponential{Initial: initial, Factor: rapid.Float64Range(1, 10).Draw(t, "factor"), Max: 10000 * day}
		if d, next := e.Delay(attempt), e.Delay(attempt+1); next < e.Max && math.Abs(float64(next)/float64(d)-e.Factor) > 2/float64(d)*e.Factor+1e-9 {
			t.Fatalf("%v: got delay %s after attempt %d, then %s; want a factor of %v", e, d, attempt, next, e.Factor)
		}
	})
}

// The upper bound of a delay is Factor times the previous random delay.
func TestDecorrelatedDependsOnPreviousDelay(t *testing.T) {
	draws := []float64{0.5, 0, 0.25, 1}
	i := 0
	d := backoff.Decorrelated{Initial: time.Second, Factor: 3, Max: time.Minute, Rand: func() float64 { i++; return draws[i-1] }}
	// 1s..3s → 2s; 1s..6s → 1s; 1s..3s → 1.5s; 1s..4.5s → 4.5s
	if got := d.Delay(4); got != 4500*time.Millisecond {
		t.Errorf("got %s, want 4.5s", got)
	}
	if low, high := d.Range(3); low != time.Second || high != 27*time.Second {
		t.Errorf("got range %s to %s, want 1s to 27s", low, high)
	}
	if _, high := d.Range(4); high != time.Minute {
		t.Errorf("longest delay after 4 attempts: got %s, want Max", high)
	}
}

func TestDecorrelatedLimitsChain(t *testing.T) {
	drawn := 0
	d := backoff.Decorrelated{Rand: func() float64 { drawn++; return 0.5 }}
	d.Delay(math.MaxInt)
	if drawn != 1000 {
		t.Errorf("random numbers for one delay: got %d, want 1000", drawn)
	}
}

func TestJitterCoversRange(t *testing.T) {
	for name, b := range map[string]backoff.Backoff{ // with the default source
		"equal":        backoff.Equal(backoff.Fixed(time.Second)),
		"full":         backoff.Full(backoff.Fixed(time.Second)),
		"decorrelated": backoff.Decorrelated{},
	} {
		low, high := backoff.Range(b, 1)
		shortest, longest := high, low
		for range 1000 {
			d := b.Delay(1)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if margin := (high - low) / 10; shortest > low+margin || longest < high-margin {
			t.Errorf("%s: got 1000 delays in [%s, %s], want almost [%s, %s]", name, shortest, longest, low, high)
		}
	}
}

func TestDelay(t *testing.T) {
	for _, tc := range []struct {
		name    string
		b       backoff.Backoff
		attempt int
		want    time.Duration
	}{
		{"fixed", backoff.Fixed(5 * time.Second), 7, 5 * time.Second},
		{"fixed negative", backoff.Fixed(-1), 1, 0},
		{"zero exponential starts at the default", backoff.Exponential{}, 1, time.Second},
		{"zero exponential doubles", backoff.Exponential{}, 4, 8 * time.Second},
		{"zero exponential ends at the default", backoff.Exponential{}, 1 << 40, time.Hour},
		{"max below the default initial", backoff.Exponential{Max: time.Millisecond}, 1, time.Millisecond},
		{"initial above the default max", backoff.Exponential{Initial: 2 * time.Hour}, 1, 2 * time.Hour},
		{"attempt zero is the first", backoff.Exponential{}, 0, time.Second},
		{"zero linear starts at the default", backoff.Linear{}, 1, time.Second},
		{"zero linear grows by the default", backoff.Linear{}, 3, 3 * time.Second},
		{"zero linear ends at the default", backoff.Linear{}, 1 << 40, time.Hour},
		{"linear with initial only", backoff.Linear{Initial: time.Minute}, 3, 3 * time.Minute},
		{"linear with step only", backoff.Linear{Step: time.Minute}, 3, 3 * time.Minute},
		{"linear with both", backoff.Linear{Initial: time.Minute, Step: time.Second}, 3, 62 * time.Second},
		{"linear with a max below the default initial", backoff.Linear{Max: time.Millisecond}, 9, time.Millisecond},
		{"linear with a step beyond the default max", backoff.Linear{Step: 2 * time.Hour}, 9, 2 * time.Hour},
		{"decorrelated with a max below the default initial", backoff.Decorrelated{Max: time.Millisecond}, 9, time.Millisecond},
		{"list", backoff.List{1, 2, 3}, 2, 2},
		{"list beyond its end", backoff.List{1, 2, 3}, 9, 3},
		{"list before its start", backoff.List{1, 2, 3}, -9, 1},
		{"list with a negative entry", backoff.List{-1}, 1, 0},
		{"empty list", backoff.List{}, 1, 0},
		{"jitter without a schedule", backoff.Jitter{}, 2, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.b.Delay(tc.attempt); got != tc.want {
				t.Errorf("Delay(%d): got %s, want %s", tc.attempt, got, tc.want)
			}
		})
	}
}

// customSchedule is a schedule of another package. It implements only Delay.
type customSchedule struct{ d time.Duration }

func (f customSchedule) Delay(int) time.Duration { return f.d }

func TestCustomSchedule(t *testing.T) {
	if err := backoff.Validate(customSchedule{}); err != nil {
		t.Errorf("Validate: got %v, want nil", err)
	}
	if low, high := backoff.Range(customSchedule{time.Minute}, 1); low != time.Minute || high != time.Minute {
		t.Errorf("got range %s to %s, want 1m", low, high)
	}
	if low, high := backoff.Range(backoff.Equal(customSchedule{time.Minute}), 1); low != 30*time.Second || high != time.Minute {
		t.Errorf("with jitter: got range %s to %s, want 30s to 1m", low, high)
	}
	if low, high := backoff.Range(customSchedule{-1}, 1); low != 0 || high != 0 {
		t.Errorf("negative: got range %s to %s, want 0", low, high)
	}
	if d := backoff.Full(customSchedule{-1}).Delay(1); d != 0 {
		t.Errorf("negative, with jitter: got %s, want 0", d)
	}
}
