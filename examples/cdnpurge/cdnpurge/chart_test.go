package cdnpurge_test

import (
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	green = color.RGBA{R: 0x2a, G: 0x8f, B: 0x82, A: 0xff}
	red   = color.RGBA{R: 0xe2, G: 0x62, B: 0x4a, A: 0xff}
	shade = color.RGBA{R: 0xf1, G: 0xf1, B: 0xee, A: 0xff}
	rule  = color.RGBA{R: 0xd9, G: 0xd9, B: 0xd6, A: 0xff}
	ink   = color.RGBA{R: 0x3a, G: 0x3a, B: 0x3a, A: 0xff}
)

// sans returns the font of the charts in the given size.
func sans(size vg.Length) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return text.Style{Color: ink, Font: f, Handler: plot.DefaultTextHandler}
}

// writeChart draws one panel for each result, all to the same scale, and writes name.svg and name.png.
func writeChart(t *testing.T, name string, results ...result) {
	t.Helper()
	most := 0
	for _, r := range results {
		for _, h := range r.hours {
			most = max(most, h.accepted+h.refused)
		}
	}
	plots := make([][]*plot.Plot, len(results))
	for i, r := range results {
		plots[i] = []*plot.Plot{panel(t, r, ceiling(most), i == 0)}
	}
	const width, height = 20 * vg.Centimeter, 6 * vg.Centimeter
	size := height * vg.Length(len(results))
	svg, png := vgsvg.New(width, size), vgimg.NewWith(vgimg.UseWH(width, size), vgimg.UseDPI(144))
	for _, canvas := range []vg.CanvasSizer{svg, png} {
		c := draw.New(canvas)
		c.SetColor(color.White)
		c.Fill(c.Rectangle.Path())
		tiles := draw.Tiles{
			Rows: len(results), Cols: 1, PadX: vg.Millimeter, PadY: 4 * vg.Millimeter,
			PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 4 * vg.Millimeter,
		}
		for i, row := range plot.Align(plots, tiles, c) {
			plots[i][0].Draw(row[0])
		}
	}
	writeFile(t, name+".svg", svg.WriteTo)
	writeFile(t, name+".png", vgimg.PngCanvas{Canvas: png}.WriteTo)
}

// panel plots the numbers of responses in each hour of a week.
func panel(t *testing.T, r result, most float64, legend bool) *plot.Plot {
	t.Helper()
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s: %s of %s calls refused", r.title, thousands(r.refused), thousands(r.calls))
	p.Title.TextStyle = sans(10)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = text.XCenter, text.YTop
	p.Title.Padding = 2 * vg.Millimeter
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, week.Hours(), 0, most
	p.Y.Label.Text = "answers per hour"
	p.Y.Label.TextStyle = sans(8)
	p.Y.Label.TextStyle.XAlign, p.Y.Label.TextStyle.YAlign = text.XCenter, text.YBottom
	p.X.Tick.Marker, p.Y.Tick.Marker = days(), steps(most)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font, a.Tick.Label.Color = sans(8).Font, ink
		a.LineStyle.Color, a.Tick.LineStyle.Color = rule, rule
		a.Padding = 0
	}
	for from := -day; from < week; from += day {
		p.Add(area(t, shade, step{max(0, from+peakBegins), 0, most}, step{min(week, from+peakEnds), 0, 0}))
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = rule, rule
	grid.Horizontal.Width, grid.Vertical.Width = vg.Points(0.5), vg.Points(0.5)
	p.Add(grid)

	var accepted, refused []step
	for i, h := range r.hours[:min(len(r.hours), 7*24)] {
		at := time.Duration(i) * time.Hour
		accepted = append(accepted, step{at, 0, float64(h.accepted)})
		refused = append(refused, step{at, float64(h.accepted), float64(h.accepted + h.refused)})
	}
	end := step{at: week}
	below, above := area(t, green, append(accepted, end)...), area(t, red, append(refused, end)...)
	p.Add(below, above)
	if legend {
		p.Legend.TextStyle = sans(8)
		p.Legend.Top, p.Legend.Left = true, true
		p.Legend.XOffs, p.Legend.YOffs = 157*vg.Millimeter, -1.5*vg.Millimeter // the empty area before Sunday's peak
		p.Legend.ThumbnailWidth, p.Legend.Padding = 4*vg.Millimeter, vg.Millimeter
		p.Legend.Add("507 full", above)
		p.Legend.Add("201 queued", below)
		p.Legend.Add("peak hours", area(t, shade, step{0, 0, 0}, step{0, 0, 0}))
	}
	return p
}

// step is a part of an area. It extends from low to top, and from its own time to the time of the next step.
type step struct {
	at       time.Duration
	low, top float64
}

// area returns a polygon that fills the steps.
func area(t *testing.T, fill color.Color, steps ...step) *plotter.Polygon {
	t.Helper()
	var top, low plotter.XYs
	for i, s := range steps {
		x := s.at.Hours()
		if i > 0 {
			before := steps[i-1]
			top, low = append(top, plotter.XY{X: x, Y: before.top}), append(low, plotter.XY{X: x, Y: before.low})
		}
		top, low = append(top, plotter.XY{X: x, Y: s.top}), append(low, plotter.XY{X: x, Y: s.low})
	}
	for i := len(low) - 1; i >= 0; i-- {
		top = append(top, low[i])
	}
	p, err := plotter.NewPolygon(top)
	if err != nil {
		t.Fatal(err)
	}
	p.Color, p.LineStyle.Width = fill, 0
	return p
}

// days returns a tick at the beginning of each day, and a label in its middle.
func days() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for i, name := range []string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"} {
		begin := time.Duration(i) * day
		ticks = append(ticks, plot.Tick{Value: begin.Hours()}, plot.Tick{Value: (begin + day/2).Hours(), Label: name})
	}
	return append(ticks, plot.Tick{Value: week.Hours()})
}

// steps returns ticks at about five round numbers from 0 to most.
func steps(most float64) plot.ConstantTicks {
	width := ceiling(int(most / 5))
	var ticks plot.ConstantTicks
	for v := 0.0; v <= most; v += width {
		ticks = append(ticks, plot.Tick{Value: v, Label: thousands(int(v))})
	}
	return ticks
}

// ceiling returns the smallest round number that is at least n.
func ceiling(n int) float64 {
	ten := math.Pow10(int(math.Log10(float64(max(n, 1)))))
	for _, round := range []float64{1, 2, 2.5, 5, 10} {
		if v := round * ten; v >= float64(n) {
			return v
		}
	}
	return 10 * ten
}

// thousands formats a number as 12,345.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func writeFile(t *testing.T, name string, write func(w io.Writer) (int64, error)) {
	t.Helper()
	f, err := os.Create(name)
	if err == nil {
		_, err = write(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
