package backoff_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/backoff"
)

func ExampleExponential() {
	b := backoff.Exponential{Initial: time.Second, Factor: 3, Max: time.Minute}
	for attempt := 1; attempt <= 6; attempt++ {
		fmt.Print(b.Delay(attempt), " ")
	}
	// Output: 1s 3s 9s 27s 1m0s 1m0s
}

func ExampleEqual() {
	b := backoff.Equal(backoff.Fixed(time.Minute))
	b.Rand = func() float64 { return 0.5 } // tests inject their own; the default is math/rand/v2
	fmt.Println(b.Delay(1))
	// Output: 45s
}

// attempts draws ordinary attempt numbers and absurd ones.
func attempts() *rapid.Generator[int] {
	return rapid.OneOf(rapid.IntRange(-3, 200), rapid.Int(), rapid.SampledFrom([]int{math.MaxInt, math.MinInt}))
}

func durations() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(
		rapid.Int64Range(0, int64(100*time.Hour)),
		rapid.Int64Range(0, math.MaxInt64),
	), func(n int64) time.Duration { return time.Duration(n) })
}

func exponentials() *rapid.Generator[backoff.Exponential] {
	return rapid.Custom(func(t *rapid.T) backoff.Exponential {
		initial := durations().Draw(t, "initial")
		e := backoff.Exponential{
			Initial: initial,
			Factor:  rapid.OneOf(rapid.Float64Range(1, 4), rapid.Float64Range(1, math.MaxFloat64), rapid.Just(0.0)).Draw(t, "factor"),
			Max:     time.Duration(rapid.Int64Range(int64(initial), math.MaxInt64).Draw(t, "max")),
		}
		if err := e.Validate(); err != nil {
			t.Skip(err)
		}
		return e
	})
}

func TestExponentialStaysInBoundsAndNeverShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := exponentials().Draw(t, "schedule")
		limit := e.Max
		if limit == 0 {
			limit = backoff.DefaultMax
		}
		attempt := attempts().Draw(t, "attempt")
		d := e.Delay(attempt)
		if d < 0 || d > limit {
			t.Fatalf("%+v: delay %d after attempt %d is outside [0, %d]", e, d, attempt, limit)
		}
		if attempt < math.MaxInt {
			if next := e.Delay(attempt + 1); next < d {
				t.Fatalf("%+v: delay shrank from %d to %d after attempt %d", e, d, next, attempt)
			}
		}
		if e.Initial > 0 && e.Delay(1) > e.Initial {
			t.Fatalf("%+v: first delay is %s", e, e.Delay(1))
		}
	})
}

func TestJitterOnlyShortens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := exponentials().Draw(t, "schedule")
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		attempt := attempts().Draw(t, "attempt")
		whole := e.Delay(attempt)

		full := backoff.Full(e)
		full.Rand = func() float64 { return random }
		if d := full.Delay(attempt); d < 0 || d > whole {
			t.Fatalf("Full: %d is outside [0, %d]", d, whole)
		}
		equal := backoff.Equal(e)
		equal.Rand = func() float64 { return random }
		// Doubles hold 53 bits: allow the rounding of one part in 2^50.
		if d := equal.Delay(attempt); d > whole || float64(d) < float64(whole)/2*(1-0x1p-50)-1 {
			t.Fatalf("Equal: %d is outside [%d, %d]", d, whole/2, whole)
		}
	})
}

func TestJitterSpreadsOverTheWholeRange(t *testing.T) {
	b := backoff.Equal(backoff.Fixed(time.Second)) // the default source
	low, high := time.Second, time.Duration(0)
	for range 1000 {
		d := b.Delay(1)
		low, high = min(low, d), max(high, d)
	}
	if low > 600*time.Millisecond || high < 900*time.Millisecond {
		t.Errorf("1000 draws lie in [%s, %s], want nearly [500ms, 1s]", low, high)
	}
}

func TestDelays(t *testing.T) {
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
		{"list", backoff.List{1, 2, 3}, 2, 2},
		{"list beyond its end", backoff.List{1, 2, 3}, 9, 3},
		{"list before its start", backoff.List{1, 2, 3}, -9, 1},
		{"list with a negative entry", backoff.List{-1}, 1, 0},
		{"empty list", backoff.List{}, 1, 0},
		{"jitter of nothing is the default schedule", backoff.Jitter{}, 2, 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.b.Delay(tc.attempt); got != tc.want {
				t.Errorf("Delay(%d) = %s, want %s", tc.attempt, got, tc.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    backoff.Backoff
		want string // "" is valid
	}{
		{"nil", nil, ""},
		{"zero exponential", backoff.Exponential{}, ""},
		{"fixed zero", backoff.Fixed(0), ""},
		{"fixed", backoff.Fixed(-time.Second), "backoff: Fixed(-1s) is negative: use 0 to retry at once, or a positive duration"},
		{"initial", backoff.Exponential{Initial: -1}, "backoff: Exponential.Initial -1ns is negative: leave it 0 for 1s, or use a positive duration"},
		{"max", backoff.Exponential{Max: -1}, "backoff: Exponential.Max -1ns is negative: leave it 0 for 1h0m0s, or use a positive duration"},
		{"factor", backoff.Exponential{Factor: 0.5}, "backoff: Exponential.Factor 0.5 is not a growth: use 1 or more (2 doubles the delay each time)"},
		{"factor NaN", backoff.Exponential{Factor: math.NaN()}, "backoff: Exponential.Factor NaN is not a growth: use 1 or more (2 doubles the delay each time)"},
		{"factor infinite", backoff.Exponential{Factor: math.Inf(1)}, "backoff: Exponential.Factor +Inf is not a growth: use 1 or more (2 doubles the delay each time)"},
		{"max below initial", backoff.Exponential{Initial: 2, Max: 1}, "backoff: Exponential.Max 1ns is below Initial 2ns: raise Max or lower Initial"},
		{"list empty", backoff.List{}, "backoff: List is empty: give at least one delay, such as List{time.Minute}"},
		{"list entry", backoff.List{1, -1}, "backoff: List entry 1 is -1ns: use 0 to retry at once, or a positive duration"},
		{"spread", backoff.Jitter{Spread: 2}, "backoff: Jitter.Spread 2 is not in [0, 1]: use 1 (as Full does), 0.5 (as Equal does) or another fraction"},
		{"inside jitter", backoff.Full(backoff.Fixed(-1)), "backoff: Fixed(-1ns) is negative: use 0 to retry at once, or a positive duration"},
		{"jitter", backoff.Full(backoff.Exponential{}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := backoff.Validate(tc.b); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestInvalidNumbersStillGiveADelay(t *testing.T) {
	for _, b := range []backoff.Backoff{
		backoff.Exponential{Factor: math.NaN()},
		backoff.Exponential{Factor: -3},
		backoff.Exponential{Initial: -5},
		backoff.Exponential{Max: -5},
		backoff.Jitter{Spread: 7},
		backoff.Jitter{Spread: -7},
		backoff.Jitter{Spread: math.NaN()},
	} {
		for _, attempt := range []int{1, 2, 3, 1000} {
			if d := b.Delay(attempt); d < 0 || d > time.Hour {
				t.Errorf("%+v: delay %s after attempt %d", b, d, attempt)
			}
		}
	}
}
