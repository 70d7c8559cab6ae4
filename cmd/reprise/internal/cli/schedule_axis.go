package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
)

// axis puts times into columns. Where the attempts would be too close to one
// another for that, it is logarithmic from about the first delay on.
type axis struct {
	columns int
	end     time.Duration
	linear  bool
	first   time.Duration // of the logarithmic one: where it begins to be so
	ticks   []time.Duration
}

func newAxis(p plan, columns int) axis {
	a := axis{columns: max(columns, 10), end: p.end()}
	i := slices.IndexFunc(p.attempts, func(r planned) bool { return r.at.high > 0 })
	a.first = cmp.Or(p.attempts[i].at.low, p.attempts[i].at.high)
	a.linear = a.evenly(a.first) >= 3
	a.mark()
	return a
}

// column is where a time is, from 0 to columns-1.
func (a axis) column(d time.Duration) int {
	if a.linear {
		return a.evenly(d)
	}
	return a.at(math.Log1p(float64(d)/float64(a.first)) / math.Log1p(float64(a.end)/float64(a.first)))
}

// evenly is where a time is on a linear axis.
func (a axis) evenly(d time.Duration) int { return a.at(float64(d) / float64(a.end)) }

func (a axis) at(part float64) int {
	return min(max(int(math.Round(part*float64(a.columns-1))), 0), a.columns-1)
}

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// rounds are times that people count in.
var rounds = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
	time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, day,
	7 * day, 30 * day, year, 10 * year, 100 * year,
}

// steps are how far the ticks of a linear axis are apart.
var steps = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 30 * day, 90 * day,
	year, 2 * year, 5 * year, 10 * year, 20 * year, 50 * year, 100 * year,
}

// mark chooses the times that are written below, so that none is in the way of
// another.
func (a *axis) mark() {
	a.ticks = []time.Duration{0}
	candidates := rounds
	if a.linear {
		candidates = nil
		for _, step := range steps {
			if n := a.end / step; n <= 7 {
				for i := range n {
					candidates = append(candidates, step*(i+1))
				}
				break
			}
		}
	}
	free := len(tick(0)) + 2
	for _, d := range candidates {
		column, width := a.column(d), len(tick(d))
		if d <= a.end && column >= free && column+width <= a.columns+labelOverhang {
			a.ticks = append(a.ticks, d)
			free = column + width + 2
		}
	}
}

func tick(d time.Duration) string {
	if d >= year && d%year == 0 {
		return fmt.Sprintf("%dy", d/year)
	}
	return config.FormatDuration(d)
}

// grid is an empty line, with the ticks in it.
func (a axis) grid() []rune {
	line := []rune(strings.Repeat(" ", a.columns))
	for _, d := range a.ticks {
		line[a.column(d)] = '·'
	}
	return line
}

func (a axis) labels() string {
	var out strings.Builder
	for _, d := range a.ticks {
		out.WriteString(strings.Repeat(" ", max(0, a.column(d)-out.Len())))
		out.WriteString(tick(d))
	}
	return out.String()
}
