package history

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// seriesOf returns a series of recorded intervals with the given failures. The last interval has not ended.
func seriesOf(r Range, failures []float64) Series {
	s := r.empty("orders", noon.Add(r.Step/2))
	s.Points = s.Points[len(s.Points)-len(failures):]
	for i := range s.Points {
		s.Points[i].Recorded, s.Points[i].Failed = r.Step, uint64(failures[i])
	}
	return s
}

// poisson draws from the Poisson distribution with mean m.
func poisson(r *rand.Rand, m float64) float64 {
	if m > 50 {
		return max(0, math.Round(m+math.Sqrt(m)*r.NormFloat64()))
	}
	n, p := 0.0, r.Float64()
	for limit := math.Exp(-m); p > limit; n++ {
		p *= r.Float64()
	}
	return n
}

// noise draws the failures of n intervals with a constant mean.
func noise(r *rand.Rand, n int, m float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = poisson(r, m)
	}
	return all
}

func seeded(t *rapid.T) *rand.Rand { return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)) }

// Random variations of a constant rate are not a rise, whether they are Poisson-distributed or differ by a factor of
// less than three.
func TestConstantRateHasNoRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := math.Exp(rapid.Float64Range(-4, 9).Draw(t, "log of the mean"))
		failures := noise(seeded(t), 60, m)
		if rapid.Bool().Draw(t, "even") {
			least := rapid.Uint64Range(0, 10_000).Draw(t, "least")
			for i := range failures {
				failures[i] = float64(rapid.Uint64Range(least, max(least, 3*least-min(least, 1))).Draw(t, "failures"))
			}
		}
		if rises := seriesOf(Hour, failures).Rises(nil); rises != nil {
			t.Fatalf("rises in %v: got %v, want none", failures, rises)
		}
	})
}

// If the rate rises suddenly within an interval, the rise starts in this interval or in the next one. The end of the
// rise is exact.
func TestRiseStartsWithinOneIntervalOfStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := seeded(t)
		calm := math.Exp(rapid.Float64Range(-4, 5).Draw(t, "log of the mean"))
		high := 150 + calm*rapid.Float64Range(10, 1000).Draw(t, "factor")
		begin, lasts := rapid.IntRange(12, 35).Draw(t, "begin"), rapid.IntRange(3, 15).Draw(t, "lasts")
		late := rapid.Float64Range(0, 1).Draw(t, "late") // position of the rise in its interval, from 0 to 1
		failures := slices.Concat(noise(r, begin, calm), []float64{poisson(r, calm) + poisson(r, high*(1-late))}, noise(r, lasts, high), noise(r, 59-begin-lasts, calm))
		s := seriesOf(Hour, failures)
		rises := s.Rises(nil)
		if len(rises) != 1 {
			t.Fatalf("got %d rises in %v, want 1: %v", len(rises), failures, rises)
		}
		found := rises[0]
		if i := s.at(found.Earliest); i != &s.Points[begin] && i != &s.Points[begin+1] {
			t.Fatalf("start of the rise: got %s, want %s: %v", found.Earliest, s.Points[begin].Start, failures)
		}
		if found.Latest != found.Earliest.Add(time.Minute) {
			t.Fatalf("bounds of the start: got %s to %s, want one minute", found.Earliest, found.Latest)
		}
		if found.End != s.Points[begin+1+lasts].Start {
			t.Fatalf("end of the rise in %v: got %s, want %s", failures, found.End, s.Points[begin+1+lasts].Start)
		}
		if found.Rate < high/2 || found.Rate > high*2 || found.Calm > 3*calm+2 {
			t.Fatalf("got rates %+v, want %g and %g", found, calm, high)
		}
	})
}

// Rises also returns a rise that still lasts. If a rise follows a gap, it may have started anywhere in the gap.
func TestRisesAtGapAndEnd(t *testing.T) {
	calm := slices.Repeat([]float64{1}, 20)
	for n, want := range map[int]int{0: 0, 1: 1, 2: 1, 5: 1} {
		s := seriesOf(Hour, slices.Concat(calm, slices.Repeat([]float64{60}, n), []float64{3}))
		rises := s.Rises(nil)
		if len(rises) != want {
			t.Errorf("after %d intervals: got %d rises, want %d", n, len(rises), want)
			continue
		}
		if want == 1 && (!rises[0].End.IsZero() || rises[0].Rate != 60 || rises[0].Calm != 1) {
			t.Errorf("rise: got %+v, want Rate 60, Calm 1 and no End", rises[0])
		}
	}
	s := seriesOf(Hour, slices.Concat(calm, slices.Repeat([]float64{60}, 9)))
	for i := 15; i < 22; i++ {
		s.Points[i].Recorded = 0
	}
	rises := s.Rises(nil)
	if len(rises) != 1 || rises[0].Earliest != s.Points[15].Start || rises[0].Latest != s.Points[23].Start {
		t.Errorf("rise after a gap: got %+v, want one that starts between %s and %s", rises, s.Points[15].Start, s.Points[23].Start)
	}
	if got := rises[0].String(); got != "Failures rose from 1/min to 60/min between 11:47 and 11:55 UTC." {
		t.Errorf("text of the rise: got %q, want bounds of the start", got)
	}
}

func TestRiseString(t *testing.T) {
	calm := slices.Concat(slices.Repeat([]float64{0, 0, 0, 0, 1}, 6))
	failures := slices.Concat(calm, slices.Repeat([]float64{48}, 10), calm[:20])
	at := noon.Add(-29 * time.Minute)
	deploy := Mark{At: at.Add(-2 * time.Minute), Text: "v2.4"}
	for _, c := range []struct {
		r     Range
		marks []Mark
		want  string
	}{
		{Hour, nil, "Failures rose from 0.2/min to 48/min at 11:31 UTC. They fell at 11:41 UTC."},
		{Hour, []Mark{deploy}, "Failures rose from 0.2/min to 48/min at 11:31 UTC, 2 min after the mark “v2.4”. They fell at 11:41 UTC."},
		{Hour, []Mark{{At: at.Add(30 * time.Second), Text: "now"}, deploy}, "Failures rose from 0.2/min to 48/min at 11:31 UTC, with the mark “now”. They fell at 11:41 UTC."},
		{Hour, []Mark{{At: at.Add(2 * time.Minute), Text: "too late"}, {At: at.Add(-time.Hour), Text: "too early"}, {At: at, Text: "other queue", Queue: "mails"}}, "Failures rose from 0.2/min to 48/min at 11:31 UTC. They fell at 11:41 UTC."},
		{Day, nil, "Failures rose from 0.03/min to 9.6/min between 09:35 and 09:40 UTC. They fell at 10:25 UTC."},
		{Week, nil, "Failures rose from <0.01/min to 0.8/min between 28 Feb 07:00 and 28 Feb 08:00 UTC. They fell at 28 Feb 17:00 UTC."},
	} {
		rises := seriesOf(c.r, failures).Rises(c.marks)
		if len(rises) != 1 {
			t.Errorf("got %d rises, want 1", len(rises))
			continue
		}
		if got := rises[0].String(); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
}

func TestRate(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 0.001: "<0.01", 0.02: "0.02", 0.2: "0.2", 1: "1", 9.96: "10", 48.2: "48", 12345: "12345"} {
		if got := Rate(rate); got != want+"/min" {
			t.Errorf("rate %g: got %s, want %s/min", rate, got, want)
		}
	}
	for d, want := range map[time.Duration]string{2 * time.Minute: "2 min", time.Hour: "1 h", 90 * time.Minute: "1 h 30 min"} {
		if got := minutesText(d); got != want {
			t.Errorf("duration %s: got %s, want %s", d, got, want)
		}
	}
	if strings.Contains(Rate(-1), "-") {
		t.Error("negative rate has a sign")
	}
}
