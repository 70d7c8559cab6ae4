package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// ChartView is a bar chart in units of the SVG viewBox. The template draws the chart. The style sheet sets the colors.
type ChartView struct {
	Width, Height int
	Base          int // y of the base line
	Bars          []chartBar
	Path          string // the bars of a small chart
	Grid          []chartGrid
	Labels        []chartLabel
	Title         string // describes the chart
}

type chartBar struct {
	X, Y, W, H float64
	Now        bool // the current bucket
	Title      string
}

type chartGrid struct {
	Y    int
	Text string
}

type chartLabel struct {
	X      float64
	Anchor string
	Text   string
}

// Hours returns the chart of the failures of g in the last 24 hours.
func Hours(g store.Group) ChartView {
	return barChart(g.Hours, "Failures per hour, last 24 hours", "15:04 UTC", "15:04", 6)
}

// Days returns the chart of the failures of g in the last 30 days.
func Days(g store.Group) ChartView {
	return barChart(g.Days, "Failures per day, last 30 days", "Mon 2 Jan", "2 Jan", 7)
}

// barChart returns a chart with a bar for each bucket. The parameter every is the distance between labeled buckets. The
// newest bucket is labeled.
func barChart(buckets []store.Bucket, title, exact, short string, every int) ChartView {
	const width, height, left, top, bottom = 440, 150, 36, 10, 22
	c := ChartView{Width: width, Height: height, Base: height - bottom, Title: title}
	if len(buckets) == 0 {
		return c
	}
	most, total := int64(0), int64(0)
	for _, b := range buckets {
		most, total = max(most, b.N), total+b.N
	}
	c.Title += ": " + Thousands(total)
	limit := ceiling(most)
	room := float64(height - top - bottom)
	for _, n := range []int64{limit / 2, limit} {
		if n > 0 {
			c.Grid = append(c.Grid, chartGrid{c.Base - int(room*float64(n)/float64(limit)), Thousands(n)})
		}
	}
	step := float64(width-left) / float64(len(buckets))
	for i, b := range buckets {
		h := room * float64(b.N) / float64(limit)
		if b.N > 0 {
			h = max(h, 2) // keep single failures visible
		}
		x := left + float64(i)*step
		c.Bars = append(c.Bars, chartBar{
			X: round1(x + step*0.14), Y: round1(float64(c.Base) - h), W: round1(step * 0.72), H: round1(h),
			Now: i == len(buckets)-1, Title: b.Start.UTC().Format(exact) + ": " + Thousands(b.N),
		})
		if back := len(buckets) - 1 - i; back%every == 0 {
			l := chartLabel{X: round1(x + step/2), Anchor: "middle", Text: b.Start.UTC().Format(short)}
			if back == 0 {
				l.X, l.Anchor, l.Text = width, "end", nowWord(buckets)
			}
			c.Labels = append(c.Labels, l)
		}
	}
	return c
}

func nowWord(buckets []store.Bucket) string {
	if n := len(buckets); n > 1 && buckets[n-1].Start.Sub(buckets[n-2].Start) >= 24*time.Hour {
		return "today"
	}
	return "now"
}

// ceiling returns the smallest number of the form 2, 4, 6, 8 or 10 times a power of ten that is at least n. Half of
// this number is an integer.
func ceiling(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, m := range []int64{2, 4, 6, 8, 10} {
			if n <= m*unit {
				return m * unit
			}
		}
	}
}

func round1(v float64) float64 { return float64(int64(v*10+0.5)) / 10 }

// Spark returns a sparkline of 96×22 units for a table row.
func Spark(buckets []store.Bucket) ChartView {
	const width, height = 96, 22
	c := ChartView{Width: width, Height: height, Base: height - 1}
	most, total := int64(1), int64(0)
	for _, b := range buckets {
		most, total = max(most, b.N), total+b.N
	}
	c.Title = Plural(total, "failure") + " in the last 24 hours"
	step := float64(width) / float64(max(len(buckets), 1))
	var path strings.Builder
	for i, b := range buckets {
		if b.N == 0 {
			continue
		}
		h := max(2, float64(height-2)*float64(b.N)/float64(most))
		fmt.Fprintf(&path, "M%s %dv%sh%sv%sz", num(float64(i)*step), c.Base, num(-h), num(step-min(1, step/3)), num(h))
	}
	c.Path = path.String()
	return c
}
