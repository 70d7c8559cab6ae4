package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/backoff"
)

func TestBackoff(t *testing.T) {
	for text, want := range map[string]backoff.Backoff{
		"{}":                          nil,
		"{initial: 2s}":               backoff.Equal(backoff.Exponential{Initial: 2 * time.Second}),
		"{max: 1d, factor: 1.5}":      backoff.Equal(backoff.Exponential{Factor: 1.5, Max: 24 * time.Hour}),
		"{initial: 2h}":               backoff.Equal(backoff.Exponential{Initial: 2 * time.Hour}),
		"{initial: 1s, jitter: none}": backoff.Exponential{Initial: time.Second},
		"{step: 10s}":                 backoff.Equal(backoff.Linear{Step: 10 * time.Second}),
		"{step: 10s, max: 30s}":       backoff.Equal(backoff.Linear{Step: 10 * time.Second, Max: 30 * time.Second}),
		"{step: 10ms, max: 30ms}":     backoff.Equal(backoff.Linear{Step: 10 * time.Millisecond, Max: 30 * time.Millisecond}),
		"{initial: 1s, step: 1m, max: 1h, jitter: none}": backoff.Linear{Initial: time.Second, Step: time.Minute, Max: time.Hour},
		"{fixed: 5m}":                      backoff.Fixed(5 * time.Minute),
		"{fixed: 0s}":                      backoff.Fixed(0),
		"{fixed: 5m, jitter: equal}":       backoff.Equal(backoff.Fixed(5 * time.Minute)),
		"{list: [1s, 0s, 1m]}":             backoff.List{time.Second, 0, time.Minute},
		"{list: [1s, 1m], jitter: 'full'}": backoff.Full(backoff.List{time.Second, time.Minute}),
		"{jitter: decorrelated}":           backoff.Decorrelated{},
		"{initial: 2s, factor: 4, max: 1d, jitter: decorrelated}": backoff.Decorrelated{Initial: 2 * time.Second, Factor: 4, Max: 24 * time.Hour},
	} {
		c := mustParse(t, "workers: [{queue: a, exec: [x], backoff: "+text+"}]")
		if diff := cmp.Diff(want, c.Workers[0].Policy.Backoff, noFuncs); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
}

// ParseDuration accepts the results of FormatDuration.
func TestFormatDurationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(0, int64(1<<63-1)/int64(unit)).Draw(t, "d"))
		s := FormatDuration(d)
		if got, err := ParseDuration(s); err != nil || got != d {
			t.Fatalf("FormatDuration(%d) = %s, and ParseDuration returned %d, want %d; error %v", d, s, got, d, err)
		}
	})
	for want, d := range map[string]time.Duration{
		"0s": 0, "1h": time.Hour, "1h0m5s": time.Hour + 5*time.Second, "10m": 10 * time.Minute, "1d12h": 36 * time.Hour,
		"1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "2d1h30m": 49*time.Hour + 30*time.Minute, "1.5s": 1500 * time.Millisecond,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
