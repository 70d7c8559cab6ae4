// Package chart draws lines over logarithmic axes.
package chart

import (
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Point is a point of a line; both values are above zero.
type Point struct{ X, Y float64 }

// Line is a line with a name.
type Line struct {
	Name   string
	Points []Point
}

// Draw writes a chart to a file, whose ending says of which kind; .svg is one.
func Draw(file, x, y string, lines []Line) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	low, high := math.Inf(1), math.Inf(-1)
	for i, line := range lines {
		xys := make(plotter.XYs, len(line.Points))
		for j, point := range line.Points {
			xys[j] = plotter.XY(point)
			low, high = min(low, point.Y), max(high, point.Y)
		}
		curve, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		curve.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(curve, points)
		p.Legend.Add(line.Name, curve, points)
	}
	// Whole decades have their marks at both ends, and leave room for the legend.
	p.Y.Min, p.Y.Max = decade(low, math.Floor), decade(high, math.Ceil)
	return p.Save(6*vg.Inch, 4*vg.Inch, file)
}

// decade returns the power of ten next to a number, on the side that round says.
func decade(x float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(x)))
}
