package replay

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

func TestRampIncreasesInSteps(t *testing.T) {
	began := time.Unix(0, 0)
	for _, tc := range []struct {
		plan failed.Plan
		want []float64 // by step
	}{
		{failed.Plan{}, []float64{0, 0}},
		{failed.Plan{Rate: 7.5}, []float64{7.5, 7.5}},
		{failed.Plan{Ramp: true, Rate: 30}, []float64{1, 2, 5, 10, 20, 30, 30, 30}},
		{failed.Plan{Ramp: true, Rate: 0.5}, []float64{0.5, 0.5}},
		{failed.Plan{Ramp: true}, []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 0, 0}},
	} {
		p := newPace(tc.plan, 100, began)
		for i, want := range tc.want {
			first, last := p.at(began.Add(time.Duration(i)*rampStep)), p.at(began.Add(time.Duration(i+1)*rampStep-1))
			if first != want || last != want {
				t.Errorf("%+v, step %d: got rates %v to %v per second, want %v", tc.plan, i, first, last, want)
			}
		}
	}
}

// In any period, the number of sent messages exceeds the rate by at most one batch.
func TestPaceDoesNotExceedRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0.01, 50_000).Draw(t, "rate")
		most := rapid.IntRange(1, 1000).Draw(t, "batch")
		began := time.Unix(1_700_000_000, 0)
		p := newPace(failed.Plan{Rate: rate, Ramp: rapid.Bool().Draw(t, "ramp")}, most, began)
		type sent struct {
			at time.Time
			n  int
		}
		var all []sent
		now := began
		for range 50 {
			now = now.Add(p.wait(now))
			n := rapid.IntRange(1, p.size(now)).Draw(t, "n")
			p.send(n, now)
			all = append(all, sent{now, n})
			now = now.Add(time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, int64(3*time.Second))).Draw(t, "took")))
		}
		for i := range all {
			total := 0
			for _, s := range all[i:] {
				allowed := rate*s.at.Sub(all[i].at).Seconds() + 1e-3
				if float64(total) > allowed {
					t.Fatalf("got %d messages in %s at rate %v, want at most %v", total, s.at.Sub(all[i].at), rate, allowed)
				}
				total += s.n
			}
		}
		if size := p.size(now); size < 1 || size > most {
			t.Fatalf("got batch size %d, want 1 to %d", size, most)
		}
	})
}

// For most rates, the time between messages is not an integer number of nanoseconds. Rounding down would exceed the
// rate slightly with each batch.
func TestPaceRoundingDoesNotExceedRate(t *testing.T) {
	const rate = 32_768.75
	began := time.Unix(1_700_000_000, 0)
	p := newPace(failed.Plan{Rate: rate}, 1, began)
	now := began
	for n := range 1000 {
		if allowed := rate * now.Sub(began).Seconds(); float64(n) > allowed+1e-6 {
			t.Fatalf("got %d messages in %s at rate %v, want at most %v", n, now.Sub(began), rate, allowed)
		}
		p.send(1, now)
		now = now.Add(p.wait(now))
	}
}

// A very low rate does not count as unlimited.
func TestPaceWithTinyRate(t *testing.T) {
	for _, rate := range []float64{1e-9, 1e-10, 5e-324} {
		now := time.Unix(1_700_000_000, 0)
		p := newPace(failed.Plan{Rate: rate}, 100, now)
		p.send(1, now)
		if wait := p.wait(now); wait < 24*time.Hour {
			t.Errorf("rate %v per second: got wait %s, want at least 24h", rate, wait)
		}
	}
}

// Remaining depends on the ramp and the current rate.
func TestRemaining(t *testing.T) {
	ramp := failed.Plan{Rate: 20, Ramp: true}
	for name, test := range map[string]struct {
		replay failed.Replay
		rate   float64
		want   time.Duration
	}{
		"at the rate":               {failed.Replay{Plan: failed.Plan{Rate: 10}, Total: 100, Sent: 40}, 10, 6 * time.Second},
		"slower by now":             {failed.Replay{Plan: failed.Plan{Rate: 10}, Total: 100, Sent: 40}, 2, 30 * time.Second},
		"without a rate":            {failed.Replay{Total: 1000, Sent: 400}, 300, 2 * time.Second},
		"not measured":              {failed.Replay{Total: 1000, Sent: 400}, 0, 0},
		"nothing sent":              {failed.Replay{Total: 1000}, 5, 0},
		"nothing left":              {failed.Replay{Total: 10, Sent: 8, Refused: 2}, 5, 0},
		"ended":                     {failed.Replay{Total: 10, Sent: 8, Ended: time.Unix(1, 0)}, 5, 0},
		"canary":                    {failed.Replay{Plan: failed.Plan{Canary: time.Minute}, Total: 10, Sent: 1}, 1, 0},
		"on the ramp":               {failed.Replay{Plan: ramp, Total: 80, Sent: 5}, 1, 5*time.Second + 20*time.Second},
		"on the ramp, canary":       {failed.Replay{Plan: failed.Plan{Rate: 20, Ramp: true, Canary: time.Minute}, Total: 81, Sent: 6}, 1, 25 * time.Second},
		"on the ramp, to its end":   {failed.Replay{Plan: ramp, Total: 1180, Sent: 30}, 2, 10*time.Second + 10*time.Second + 50*time.Second},
		"at the end of the ramp":    {failed.Replay{Plan: ramp, Total: 1000, Sent: 800}, 19, 10526 * time.Millisecond},
		"slower than the ramp":      {failed.Replay{Plan: ramp, Total: 100, Sent: 80}, 2, 10 * time.Second},
		"on a ramp without a limit": {failed.Replay{Plan: failed.Plan{Ramp: true}, Total: 31, Sent: 10}, 2, 10200 * time.Millisecond},
	} {
		if got := Remaining(&test.replay, test.rate).Round(time.Millisecond); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
