// Package chart draws line charts with a logarithmic x axis and a linear y axis.
package chart

import (
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Point is a point on a line. Both values must be positive.
type Point struct{ X, Y float64 }

// Line is a line with a name.
type Line struct {
	Name   string
	Points []Point
}

// Draw writes a chart to a file. The parameters x and y are the axis titles. The file name extension, such as .svg,
// determines the format. If the folder is missing, Draw creates it.
func Draw(file, x, y string, lines []Line) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	high := 0.0
	for i, line := range lines {
		xys := make(plotter.XYs, len(line.Points))
		for j, point := range line.Points {
			xys[j] = plotter.XY(point)
			high = max(high, point.Y)
		}
		curve, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		curve.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(curve, points)
		p.Legend.Add(line.Name, curve, points)
	}
	p.Y.Min, p.Y.Max = 0, 1.4*high // with room for the legend
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	return p.Save(6*vg.Inch, 4*vg.Inch, file)
}
