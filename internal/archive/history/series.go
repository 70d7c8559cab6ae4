package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/brief"
)

// Range is a period that ends now and is divided into intervals of a minute, 5 minutes or an hour.
type Range struct {
	Name   string // "1h", "24h" or "7d"
	Length time.Duration
	Step   time.Duration
}

// The ranges.
var (
	Hour = Range{"1h", time.Hour, time.Minute}
	Day  = Range{"24h", 24 * time.Hour, 5 * time.Minute}
	Week = Range{"7d", 7 * 24 * time.Hour, time.Hour}
)

// Ranges returns all ranges, the shortest first.
func Ranges() []Range { return []Range{Hour, Day, Week} }

// ParseRange returns the range with the given name.
func ParseRange(name string) (Range, error) {
	var names []string
	for _, r := range Ranges() {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	return Range{}, fmt.Errorf("range %s not found (use %s)", brief.Quoted(name), strings.Join(names, ", "))
}

// kept returns the age at which rows of a step are removed. The age is longer than the range, so that the first
// interval is complete.
func kept(step time.Duration) time.Duration {
	switch step {
	case Hour.Step:
		return 3 * time.Hour
	case Day.Step:
		return 25 * time.Hour
	}
	return keepLongest
}

const keepLongest = 8 * 24 * time.Hour

// Point is an interval of a Series.
type Point struct {
	Start time.Time
	Totals

	// Recorded is the duration of the recorded part of the interval, in whole minutes unless the interval has not
	// ended. If it is 0, no process recorded the interval, and the counts are zero or an even share of the events of a
	// longer time.
	Recorded time.Duration
}

// Gap reports whether no process recorded the interval.
func (p Point) Gap() bool { return p.Recorded == 0 }

// Series is the history of a queue over a range: adjacent intervals, the oldest first. The last interval has not
// ended at the time Now.
type Series struct {
	Queue  string
	Range  Range
	Now    time.Time
	Points []Point
}

// Sum returns the totals of all intervals.
func (s Series) Sum() (sum Totals) {
	for _, p := range s.Points {
		sum = sum.Add(p.Totals)
	}
	return sum
}

// Lasted returns the elapsed part of the interval with the index i: Range.Step, or less for the last interval, but at
// least a second.
func (s Series) Lasted(i int) time.Duration {
	return max(time.Second, min(s.Range.Step, s.Now.Sub(s.Points[i].Start)))
}

// PerMinute returns the rate of n events in an interval.
func (s Series) PerMinute(i int, n uint64) float64 { return float64(n) / s.Lasted(i).Minutes() }

// Gaps returns the times that no process recorded, as intervals [from, to).
func (s Series) Gaps() (gaps [][2]time.Time) {
	for i, p := range s.Points {
		end := p.Start.Add(s.Lasted(i))
		switch {
		case !p.Gap():
		case i > 0 && s.Points[i-1].Gap():
			gaps[len(gaps)-1][1] = end
		default:
			gaps = append(gaps, [2]time.Time{p.Start, end})
		}
	}
	return gaps
}

// Merged combines adjacent intervals, so that the result has at most the given number of intervals. A merged interval
// counts as recorded if at least one of its parts is recorded.
func (s Series) Merged(most int) Series {
	n := (len(s.Points) + most - 1) / most
	if n <= 1 {
		return s
	}
	merged := s
	merged.Range.Step, merged.Points = time.Duration(n)*s.Range.Step, nil
	for part := range slices.Chunk(s.Points, n) {
		p := Point{Start: part[0].Start}
		for _, x := range part {
			p.Totals = p.Totals.Add(x.Totals)
			p.Recorded += x.Recorded
		}
		merged.Points = append(merged.Points, p)
	}
	return merged
}

// empty returns a series without events.
func (r Range) empty(queue string, now time.Time) Series {
	s := Series{Queue: queue, Range: r, Now: now}
	for at := now.Truncate(r.Step).Add(r.Step - r.Length); !at.After(now); at = at.Add(r.Step) {
		s.Points = append(s.Points, Point{Start: at})
	}
	return s
}

// at returns the interval that begins at start, or nil.
func (s *Series) at(start time.Time) *Point {
	i := int(start.Sub(s.Points[0].Start) / s.Range.Step)
	if start.Before(s.Points[0].Start) || i >= len(s.Points) {
		return nil
	}
	return &s.Points[i]
}

// sorted sorts series by queue.
func sorted(all map[string]*Series) []Series {
	list := make([]Series, 0, len(all))
	for _, s := range all {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(x, y Series) int { return strings.Compare(x.Queue, y.Queue) })
	return list
}
