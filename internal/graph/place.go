package graph

import (
	"cmp"
	"slices"
)

// vertically places a part of the drawing at y and below, and returns where the
// next may begin.
func (d *drawing) vertically(part []*box, y float64) float64 {
	var columns [][]*box
	for _, b := range part {
		for len(columns) <= b.column {
			columns = append(columns, nil)
		}
		b.order = float64(len(columns[b.column]))
		columns[b.column] = append(columns[b.column], b)
	}
	d.untangle(columns)
	tallest := 0
	for c := range columns {
		if columnHeight(columns[c]) > columnHeight(columns[tallest]) {
			tallest = c
		}
	}
	stack(columns[tallest], y, nil)
	for c := tallest + 1; c < len(columns); c++ {
		stack(columns[c], y, d.neighbours(c-1))
	}
	for c := tallest - 1; c >= 0; c-- {
		stack(columns[c], y, d.neighbours(c+1))
	}
	bottom := y
	for _, b := range part {
		bottom = max(bottom, b.y+b.outerHeight())
	}
	for _, b := range part {
		spread(b, b.left, true)
		spread(b, b.right, false)
	}
	for _, l := range d.lines {
		if l.lane && slices.Contains(part, l.from) {
			bottom += laneGap
			l.laneY = bottom
		}
	}
	return bottom + rowGap
}

func (b *box) outerHeight() float64 {
	if b.loop {
		return b.h + loopHeight
	}
	return b.h
}

func columnHeight(column []*box) float64 {
	h := 0.0
	for _, b := range column {
		h += b.outerHeight() + rowGap
	}
	return h
}

// untangle orders each column by where its neighbours are.
func (d *drawing) untangle(columns [][]*box) {
	for range 4 {
		for _, column := range columns {
			for _, b := range column {
				sum, n := 0.0, 0.0
				for _, l := range d.lines {
					switch {
					case l.from == l.to:
					case l.from == b:
						sum, n = sum+l.to.order, n+1
					case l.to == b:
						sum, n = sum+l.from.order, n+1
					}
				}
				b.centre = b.order
				if n > 0 {
					b.centre = sum / n
				}
			}
			slices.SortStableFunc(column, func(a, b *box) int { return cmp.Compare(a.centre, b.centre) })
			for i, b := range column {
				b.order = float64(i) / float64(len(column)) // columns differ in length
			}
		}
	}
}

// neighbours gives the middle of what a node is connected to in a column.
func (d *drawing) neighbours(column int) func(*box) (float64, bool) {
	return func(b *box) (float64, bool) {
		sum, n := 0.0, 0.0
		for _, l := range d.lines {
			for _, pair := range [][2]*box{{l.from, l.to}, {l.to, l.from}} {
				if pair[0] == b && pair[1].column == column {
					sum, n = sum+pair[1].y+pair[1].h/2, n+1
				}
			}
		}
		return sum / max(n, 1), n > 0
	}
}

// stack places a column, each node where it is wanted or else below the one
// before.
func stack(column []*box, y float64, wanted func(*box) (float64, bool)) {
	for i, b := range column {
		b.y = y
		if wanted == nil {
			y += b.outerHeight() + rowGap
			continue
		}
		// As many as are wanted at the same place share it.
		middle, ok := wanted(b)
		if ok {
			same := 0.0
			for _, other := range column[i:] {
				if m, _ := wanted(other); m == middle {
					same += other.outerHeight() + rowGap
				}
			}
			b.y = max(y, middle-(same-rowGap)/2)
		}
		y = b.y + b.outerHeight() + rowGap
	}
}

// spread gives the edges at a side of a node their heights.
func spread(b *box, lines []*line, labelled bool) {
	far := func(l *line) float64 {
		other := l.to
		if l.to == b {
			other = l.from
		}
		y := other.y + other.h/2
		switch {
		case l.lane:
			y += 1e6 // below all
		case l.Way == Returns:
			y += 1 // below the way out
		}
		return y
	}
	slices.SortStableFunc(lines, func(a, b *line) int { return cmp.Compare(far(a), far(b)) })
	y := b.y + (b.h-portsHeight(lines, labelled))/2
	for _, l := range lines {
		h := portHeight(l, labelled)
		at := y + h/2
		if labelled {
			at = y + h - portGap/2 // labels are above it
		}
		if l.from == b {
			l.y1 = at
		} else {
			l.y2 = at
		}
		y += h
	}
}
