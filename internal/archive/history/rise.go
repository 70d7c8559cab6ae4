package history

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Constants of the rule for rises: see Series.Rises.
const (
	calmMost  = 30 // maximum number of earlier intervals to compare with
	calmLeast = 5  // minimum number of earlier intervals
	ahead     = 3  // number of intervals, from the start of a rise, that the rule examines

	riseFactor = 3  // minimum ratio to the earlier rate
	riseLeast  = 10 // minimum number of failures in the examined intervals
	riseChance = 20 // minimum negative logarithm of the probability
)

// Rise is a period in which failures of a queue are much more frequent than before.
type Rise struct {
	// Earliest and Latest are the bounds of the start of the rise. If the interval before the rise was recorded, they
	// are the bounds of the first interval of the rise.
	Earliest, Latest time.Time

	// End is the start of the interval in which the failures fell. It is zero while the rise lasts.
	End time.Time

	// Peak is the highest rate in any interval of the rise. Rate is the mean rate from the start to the end. Calm is the
	// mean rate of the previous intervals that Rises compares with, except the last of them. All three rates are per
	// minute.
	Peak, Rate, Calm float64

	// After is the newest mark shortly before the start, or nil.
	After *Mark

	step time.Duration
	now  time.Time
}

// Rises returns the rises of failures in the series, the newest first, with the newest mark shortly before each.
//
// A rise starts in the first interval that, together with the next two, meets the following conditions.
// At the end of the series, fewer intervals are sufficient. Only recorded intervals that have ended count.
//
//   - The mean rate of these intervals is at least 3 times the mean rate of the 5 to 30 previous recorded intervals
//     that do not belong to another rise.
//   - These intervals have at least 10 failures.
//   - By the Chernoff bound, the probability of such a difference at a constant rate is less than e^-20.
//   - The first interval has at least half as many failures as each of the others, so that the start is not too early.
//
// A rise ends at the first interval in which the rate has fallen by at least three quarters of the difference between
// the mean rate during the rise and the mean rate before it. The mean rate of this interval and the two intervals after
// it must also have fallen by this amount. The mark of a rise is at most 30 minutes before Earliest (or two intervals,
// if they are longer), and before Latest.
func (s Series) Rises(marks []Mark) []Rise {
	type sample struct {
		at       int // index in Points
		failures float64
	}
	var samples []sample
	for i, p := range s.Points {
		if !p.Gap() && i < len(s.Points)-1 {
			samples = append(samples, sample{i, float64(p.Failures())})
		}
	}
	perMinute := 1 / s.Range.Step.Minutes()
	var rises []Rise
	var baseline, risen []float64 // failures of intervals
	for j, x := range samples {
		var next []float64
		for _, y := range samples[j:min(j+ahead, len(samples))] {
			next = append(next, y.failures)
		}
		switch {
		case risen == nil && isRise(baseline, next):
			start := s.Points[x.at].Start
			r := Rise{Earliest: start, Latest: start.Add(s.Range.Step), Calm: mean(baseline[:len(baseline)-1]) * perMinute, step: s.Range.Step, now: s.Now}
			if j > 0 {
				r.Earliest = s.Points[samples[j-1].at].Start.Add(s.Range.Step)
			}
			r.After = r.markOf(marks, s.Queue)
			rises = append(rises, r)
			risen = []float64{x.failures}
		case risen == nil:
			baseline = append(baseline, x.failures)
			baseline = baseline[max(0, len(baseline)-calmMost):]
		case len(next) == ahead && max(x.failures, mean(next)) <= mean(baseline)+(mean(risen)-mean(baseline))/4:
			rises[len(rises)-1].End = s.Points[x.at].Start
			risen = nil
		default:
			risen = append(risen, x.failures)
		}
		if risen != nil {
			r := &rises[len(rises)-1]
			r.Rate, r.Peak = mean(risen)*perMinute, max(r.Peak, x.failures*perMinute)
		}
	}
	slices.Reverse(rises)
	return rises
}

func isRise(baseline, next []float64) bool {
	if len(baseline) < calmLeast {
		return false
	}
	before, after := mean(baseline), mean(next)
	n := after * float64(len(next))
	return after >= riseFactor*before && n >= riseLeast && next[0] >= slices.Max(next)/2 &&
		unevenness(n, before*float64(len(baseline)), float64(len(next))/float64(len(next)+len(baseline))) > riseChance
}

// unevenness returns the negative logarithm of an upper bound of the probability that, at a constant rate, at least n
// of n+rest events occur in the given share of the time. n must exceed share*(n+rest).
func unevenness(n, rest, share float64) float64 {
	all := n + rest
	d := n * math.Log(n/all/share)
	if rest > 0 {
		d += rest * math.Log(rest/all/(1-share))
	}
	return d
}

func mean(all []float64) (m float64) {
	for _, x := range all {
		m += x
	}
	return m / float64(max(1, len(all)))
}

// markOf returns the newest mark shortly before the start of a rise.
func (r *Rise) markOf(marks []Mark, queue string) (found *Mark) {
	since := r.Earliest.Add(-max(30*time.Minute, 2*r.step))
	for _, m := range marks {
		if m.For(queue) && !m.At.Before(since) && m.At.Before(r.Latest) && (found == nil || m.At.After(found.At)) {
			found = &m
		}
	}
	return found
}

// String describes the rise in a sentence, such as: Failures rose from 0.2/min to 48/min at 14:03 UTC, 2 min after the mark
// “v2.4”. Times are in UTC.
func (r Rise) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Failures rose from %s to %s ", Rate(r.Calm), Rate(r.Rate))
	if r.Latest.Sub(r.Earliest) <= time.Minute {
		fmt.Fprintf(&b, "at %s UTC", r.clock(r.Earliest))
	} else {
		fmt.Fprintf(&b, "between %s and %s UTC", r.clock(r.Earliest), r.clock(r.Latest))
	}
	if r.After != nil {
		when := "with"
		switch d := r.Earliest.Sub(r.After.At).Round(time.Minute); {
		case d < time.Minute:
		case r.Latest.Sub(r.Earliest) <= time.Minute:
			when = minutesText(d) + " after"
		default:
			when = "after"
		}
		fmt.Fprintf(&b, ", %s the mark %s", when, brief.Quoted(r.After.Text))
	}
	b.WriteString(".")
	if !r.End.IsZero() {
		fmt.Fprintf(&b, " They fell at %s UTC.", r.clock(r.End))
	}
	return b.String()
}

func minutesText(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute), " 0 min")
	}
	return fmt.Sprintf("%d min", d/time.Minute)
}

// clock formats a time, with the date unless it is today.
func (r Rise) clock(t time.Time) string {
	t, now := t.UTC(), r.now.UTC()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04")
	}
	return t.Format("2 Jan 15:04")
}

// Rate formats a rate per minute with about two digits: 0.02/min, 0.2/min, 48/min.
func Rate(perMinute float64) string {
	switch {
	case perMinute <= 0:
		return "0/min"
	case perMinute < 0.01:
		return "<0.01/min"
	case perMinute >= 9.95:
		return strconv.FormatFloat(perMinute, 'f', 0, 64) + "/min"
	case perMinute >= 0.095:
		return strings.TrimSuffix(strconv.FormatFloat(perMinute, 'f', 1, 64), ".0") + "/min"
	}
	return strconv.FormatFloat(perMinute, 'f', 2, 64) + "/min"
}
