package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    backoff.Backoff
		want string // error string; "" for no error
	}{
		{"nil", nil, ""},
		{"zero exponential", backoff.Exponential{}, ""},
		{"zero linear", backoff.Linear{}, ""},
		{"zero decorrelated", backoff.Decorrelated{}, ""},
		{"fixed zero", backoff.Fixed(0), ""},
		{"linear", backoff.Linear{Initial: time.Second, Step: time.Hour, Max: time.Minute}, ""},
		{"fixed", backoff.Fixed(-time.Second), "backoff: Fixed must not be negative: got -1s (0 retries immediately)"},
		{"initial", backoff.Exponential{Initial: -1}, "backoff: Exponential.Initial must not be negative: got -1ns (0 means 1s)"},
		{"max", backoff.Exponential{Max: -1}, "backoff: Exponential.Max must not be negative: got -1ns (0 means 1h0m0s)"},
		{"factor", backoff.Exponential{Factor: 0.5}, "backoff: Exponential.Factor must be finite and at least 1: got 0.5 (2 doubles the delay each time)"},
		{"factor NaN", backoff.Exponential{Factor: math.NaN()}, "backoff: Exponential.Factor must be finite and at least 1: got NaN (2 doubles the delay each time)"},
		{"factor infinite", backoff.Exponential{Factor: math.Inf(1)}, "backoff: Exponential.Factor must be finite and at least 1: got +Inf (2 doubles the delay each time)"},
		{"max below initial", backoff.Exponential{Initial: 2, Max: 1}, "backoff: Exponential.Max must not be below Initial 2ns: got 1ns"},
		{"linear initial", backoff.Linear{Initial: -1}, "backoff: Linear.Initial must not be negative: got -1ns (0 means 1s)"},
		{"linear step", backoff.Linear{Step: -1}, "backoff: Linear.Step must not be negative: got -1ns (0 means Initial)"},
		{"linear max", backoff.Linear{Step: 1, Max: -1}, "backoff: Linear.Max must not be negative: got -1ns (0 means 1h0m0s)"},
		{"linear max below initial", backoff.Linear{Initial: 2, Max: 1}, "backoff: Linear.Max must not be below Initial 2ns: got 1ns"},
		{"decorrelated initial", backoff.Decorrelated{Initial: -1}, "backoff: Decorrelated.Initial must not be negative: got -1ns (0 means 1s)"},
		{"decorrelated max below initial", backoff.Decorrelated{Initial: 2, Max: 1}, "backoff: Decorrelated.Max must not be below Initial 2ns: got 1ns"},
		{"decorrelated factor", backoff.Decorrelated{Factor: 0.5}, "backoff: Decorrelated.Factor must be finite and at least 1: got 0.5 (3 permits up to three times the previous delay)"},
		{"list empty", backoff.List{}, "backoff: List must not be empty (List{time.Minute} always waits 1m)"},
		{"list entry", backoff.List{1, -1}, "backoff: List[1] must not be negative: got -1ns (0 retries immediately)"},
		{"spread", backoff.Jitter{Spread: 2}, "backoff: Jitter.Spread must be between 0 and 1: got 2 (Full uses 1, Equal 0.5)"},
		{"inside jitter", backoff.Full(backoff.Fixed(-1)), "backoff: Fixed must not be negative: got -1ns (0 retries immediately)"},
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

func TestString(t *testing.T) {
	for want, b := range map[string]backoff.Backoff{
		"always 5m":                   backoff.Fixed(5 * time.Minute),
		"always 0s":                   backoff.List{},
		"always 1h":                   backoff.List{time.Hour},
		"1s, 1m30s, then always 1h1m": backoff.List{time.Second, 90 * time.Second, 61 * time.Minute},
		"1ns, 2ns, 3ns, 4ns, 5ns, 6ns, …, then always 8ns":                  backoff.List{1, 2, 3, 4, 5, 6, 7, 8},
		"exponential from 1s ×2 up to 1h":                                   backoff.Exponential{},
		"exponential from 2h ×1.5 up to 2h":                                 backoff.Exponential{Initial: 2 * time.Hour, Factor: 1.5},
		"linear from 1s +5s up to 10m":                                      backoff.Linear{Initial: time.Second, Step: 5 * time.Second, Max: 10 * time.Minute},
		"decorrelated from 1s, at most ×3 the previous delay, up to 1h":     backoff.Decorrelated{},
		"exponential from 1s ×2 up to 1h, half random":                      backoff.Equal(backoff.Exponential{}),
		"exponential from 1s ×2 up to 1h, 12.5% random":                     backoff.Jitter{Spread: 0.125},
		"linear from 1m +1m up to 1h":                                       backoff.Jitter{Backoff: backoff.Linear{Step: time.Minute}},
		"linear from 1s +1s up to 1h, all random":                           backoff.Full(backoff.Linear{}),
		"decorrelated from 1s, at most ×3 the previous delay, up to 1h0m1s": backoff.Decorrelated{Max: time.Hour + time.Second},
	} {
		if got := b.(interface{ String() string }).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
