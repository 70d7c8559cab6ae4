package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/brief"
)

// HistoryChart is a chart of a history, with bars or with lines of quantiles. It has a wide and a narrow drawing. The
// style sheet displays one of the two.
type HistoryChart struct {
	ID    string // unique on the page
	Title string
	Desc  string
	Draws []HistoryDrawing
}

// HistoryDrawing is a drawing in units of the SVG viewBox.
type HistoryDrawing struct {
	ID, Class     string
	Width, Height int
	Left, Top     int    // of the plot area
	Base          int    // y of the base line
	Bars, Guesses string // paths; Guesses are the bars of intervals with unrecorded time
	Lines         []historyLine
	Gaps          []historyBox
	Hovers        []historyBox
	Grid          []historyGrid
	Labels        []chartLabel
	Marks         []historyMark
}

// Room returns the height of the plot area, which contains the bars and lines.
func (d HistoryDrawing) Room() int { return d.Base - d.Top }

type historyLine struct{ Class, Path string }

type historyBox struct {
	X, W  float64
	Title string
}

type historyGrid struct {
	Y    float64
	Text string
}

type historyMark struct {
	X, LabelX, LabelY float64
	Anchor            string
	Label             string // "": there is no room
	Title             string
}

// historySize contains the dimensions of the wide or the narrow drawing.
type historySize struct {
	class      string
	width      int
	intervals  int // maximum number
	labelEvery map[string]time.Duration
}

var historySizes = []historySize{
	{"wide", 1120, 300, map[string]time.Duration{"1h": 10 * time.Minute, "24h": 3 * time.Hour, "7d": 24 * time.Hour}},
	{"narrow", 400, 100, map[string]time.Duration{"1h": 20 * time.Minute, "24h": 6 * time.Hour, "7d": 48 * time.Hour}},
}

const (
	historyLeft   = 46
	historyRight  = 8
	historyTop    = 34 // room for two lines of mark labels
	historyBottom = 22
	historyHeight = 190
)

// HistoryBars returns a bar chart of a count, as a rate per minute. The last parameter returns the count in an
// interval.
func HistoryBars(s history.Series, marks []history.Mark, id, title string, of func(history.Totals) uint64) HistoryChart {
	sum := of(s.Sum())
	highest := 0.0
	for i, p := range s.Points {
		highest = max(highest, s.PerMinute(i, of(p.Totals)))
	}
	c := HistoryChart{ID: id, Title: title, Desc: fmt.Sprintf("%s to %s: %s, at most %s.", historyTime(s, s.Points[0].Start), historyTime(s, s.Now), Thousands(int64(sum)), history.Rate(highest))}
	for _, size := range historySizes {
		part := s.Merged(size.intervals)
		d := newHistoryDrawing(part, marks, id, size)
		top := 0.0
		for i, p := range part.Points {
			top = max(top, part.PerMinute(i, of(p.Totals)))
		}
		top = ceilingOf(top)
		room := float64(d.Base - d.Top)
		for _, v := range []float64{top / 2, top} {
			d.Grid = append(d.Grid, historyGrid{round1(float64(d.Base) - room*v/top), axisNumber(v)})
		}
		var bars, guesses strings.Builder
		for i, p := range part.Points {
			n := of(p.Totals)
			if n == 0 {
				continue
			}
			x, w := d.box(part, i)
			h := max(1.5, room*part.PerMinute(i, n)/top) // keep single failures visible
			to := &bars
			if p.Gap() {
				to = &guesses
			}
			fmt.Fprintf(to, "M%s %dv%sh%sv%sz", num(x+w*0.08), d.Base, num(-h), num(w*0.84), num(h))
		}
		d.Bars, d.Guesses = bars.String(), guesses.String()
		c.Draws = append(c.Draws, d)
	}
	return c
}

// quantiles are the quantiles of HistoryTimes and their CSS classes.
var quantiles = []struct {
	q    float64
	name string
}{{0.99, "p99"}, {0.95, "p95"}, {0.5, "p50"}}

// HistoryTimes returns a chart of quantiles of handling times, on a logarithmic scale.
func HistoryTimes(s history.Series, marks []history.Mark, id, title string) HistoryChart {
	all := s.Sum().Took
	c := HistoryChart{ID: id, Title: title, Desc: "Nothing was handled."}
	if all.Count() > 0 {
		c.Desc = fmt.Sprintf("%s to %s: half of the attempts took at most %s, 95 percent at most %s, 99 percent at most %s.",
			historyTime(s, s.Points[0].Start), historyTime(s, s.Now), Took(all.Quantile(0.5)), Took(all.Quantile(0.95)), Took(all.Quantile(0.99)))
	}
	for _, size := range historySizes {
		part := s.Merged(size.intervals)
		d := newHistoryDrawing(part, marks, id, size)
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for _, p := range part.Points {
			if p.Took.Count() > 0 {
				low, high = min(low, p.Took.Quantile(0.5)), max(high, p.Took.Quantile(0.99))
			}
		}
		if high > 0 {
			bottom, top := math.Log10(float64(low))-0.2, math.Log10(float64(high))+0.1
			y := func(v time.Duration) float64 {
				return float64(d.Base) - float64(d.Base-d.Top)*(math.Log10(float64(v))-bottom)/(top-bottom)
			}
			d.Grid = timeGrid(low, high, y)
			for _, q := range quantiles {
				d.Lines = append(d.Lines, historyLine{q.name, d.line(part, q.q, y)})
			}
		}
		c.Draws = append(c.Draws, d)
	}
	return c
}

// line returns the path of quantile q. It passes through the middle of each interval that has handling times.
func (d *HistoryDrawing) line(s history.Series, q float64, y func(time.Duration) float64) string {
	var b strings.Builder
	drawn := false
	for i, p := range s.Points {
		if p.Took.Count() == 0 {
			drawn = false
			continue
		}
		x, w := d.box(s, i)
		at := y(p.Took.Quantile(q))
		if drawn {
			fmt.Fprintf(&b, "L%s %s", num(x+w/2), num(at))
		} else {
			fmt.Fprintf(&b, "M%s %sh%sh%s", num(x+w*0.2), num(at), num(w*0.6), num(-w*0.3)) // keep single intervals visible
		}
		drawn = true
	}
	return b.String()
}

// timeGrid returns grid lines at round times from about low to about high. Default: one line at high.
func timeGrid(low, high time.Duration, y func(time.Duration) float64) (grid []historyGrid) {
	for _, unit := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute, 10 * time.Minute} {
		if unit >= low*2/3 && unit <= high*5/4 {
			grid = append(grid, historyGrid{round1(y(unit)), Took(unit)})
		}
	}
	if len(grid) == 0 {
		grid = append(grid, historyGrid{round1(y(high)), Took(high)})
	}
	return grid
}

func newHistoryDrawing(s history.Series, marks []history.Mark, id string, size historySize) HistoryDrawing {
	d := HistoryDrawing{
		ID: id + "-" + size.class, Class: size.class, Width: size.width, Height: historyHeight,
		Left: historyLeft, Top: historyTop, Base: historyHeight - historyBottom,
	}
	for i, p := range s.Points {
		x, w := d.box(s, i)
		d.Hovers = append(d.Hovers, historyBox{round1(x), round1(w), historyTitle(s, i)})
		if p.Gap() {
			if n := len(d.Gaps); n > 0 && s.Points[i-1].Gap() {
				d.Gaps[n-1].W = round1(x + w - d.Gaps[n-1].X)
			} else {
				d.Gaps = append(d.Gaps, historyBox{round1(x), round1(w), ""})
			}
		}
		every := size.labelEvery[s.Range.Name]
		if tick := p.Start.Add(s.Range.Step).Truncate(every); tick.After(p.Start) || tick.Equal(p.Start) && s.Range.Step == every {
			at := d.at(s, tick)
			if at > float64(d.Left)+12 && at < float64(d.Width)-24 && tick.Before(s.Now) {
				d.Labels = append(d.Labels, chartLabel{round1(at), "middle", tickText(s.Range.Name, tick)})
			}
		}
	}
	d.mark(s, marks)
	return d
}

// tickText formats a time on the horizontal axis.
func tickText(name string, t time.Time) string {
	if name == "7d" {
		return t.UTC().Format("Mon 2 Jan")
	}
	return t.UTC().Format("15:04")
}

// historyEnd returns the end of the last interval.
func historyEnd(s history.Series) time.Time {
	return s.Points[len(s.Points)-1].Start.Add(s.Range.Step)
}

// at returns the horizontal position of a time.
func (d *HistoryDrawing) at(s history.Series, t time.Time) float64 {
	begin := s.Points[0].Start
	part := float64(t.Sub(begin)) / float64(historyEnd(s).Sub(begin))
	return float64(d.Left) + part*float64(d.Width-d.Left-historyRight)
}

// box returns the horizontal position and the width of an interval.
func (d *HistoryDrawing) box(s history.Series, i int) (x, w float64) {
	x = d.at(s, s.Points[i].Start)
	return x, d.at(s, s.Points[i].Start.Add(s.Range.Step)) - x
}

// maxMarkLabel is the maximum length of a mark's label, in characters.
const maxMarkLabel = 18

// mark adds marks, the oldest first. Each label is on the first line with enough room, of two lines. If both are full,
// mark omits the label.
func (d *HistoryDrawing) mark(s history.Series, marks []history.Mark) {
	var ends [2]float64
	for _, m := range marks {
		x := d.at(s, m.At)
		mark := historyMark{X: round1(x), Title: fmt.Sprintf("%s: %s", Exact(m.At), brief.Visible(m.Text)), Anchor: "start"}
		label := brief.Clip(brief.Visible(m.Text), maxMarkLabel)
		width := 7.2*float64(len([]rune(label))) + 8
		for line := range ends {
			from := x + 4
			if from+width > float64(d.Width) {
				from = x - 4 - width
				mark.Anchor = "end"
			}
			if from < ends[line] || from < 0 {
				continue
			}
			ends[line] = from + width
			mark.Label, mark.LabelX, mark.LabelY = label, round1(x+4), float64(12+15*line)
			if mark.Anchor == "end" {
				mark.LabelX = round1(x - 4)
			}
			break
		}
		d.Marks = append(d.Marks, mark)
	}
}

// historyTitle returns the tooltip of an interval.
func historyTitle(s history.Series, i int) string {
	p := s.Points[i]
	text := historyTime(s, p.Start)
	if p.Gap() {
		text += " (not recorded)"
	}
	text += fmt.Sprintf("\n%s succeeded (%s)\n%s (%s)", Thousands(int64(p.Succeeded)), history.Rate(s.PerMinute(i, p.Succeeded)),
		Plural(int64(p.Failures()), "failure"), history.Rate(s.PerMinute(i, p.Failures())))
	if p.Took.Count() > 0 {
		text += fmt.Sprintf("\np50 %s, p95 %s, p99 %s", Took(p.Took.Quantile(0.5)), Took(p.Took.Quantile(0.95)), Took(p.Took.Quantile(0.99)))
	}
	return text
}

// historyTime formats a time, with the day if the range is longer than an hour.
func historyTime(s history.Series, t time.Time) string {
	if s.Range.Length > time.Hour {
		return t.UTC().Format("2 Jan 15:04 UTC")
	}
	return t.UTC().Format("15:04 UTC")
}

// Took formats a handling time, which is the upper bound of a bucket, such as 125 µs, 64 ms, 2 s or 17 min.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 2*time.Minute:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
	return Short(d)
}

// ceilingOf returns the smallest round number that is at least v.
func ceilingOf(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if v <= m*unit*1.0001 {
			return m * unit
		}
	}
	return 10 * unit
}

// axisNumber formats a round number on an axis.
func axisNumber(v float64) string {
	if v >= 1000 {
		return Thousands(int64(v))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// num formats a coordinate with one decimal place.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
