package graph

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// The sizes of a drawing, in pixels. Texts are monospaced, so that their widths
// are known.
const (
	margin     = 24
	nameWidth  = 7.9 // of a letter of 13 pixels
	smallWidth = 6.7 // of a letter of 11 pixels
	lineHeight = 15
	padding    = 14
	rowGap     = 26
	curve      = 70 // room for an edge to bend, besides its labels
	portGap    = 18
	loopHeight = 58 // below a node that leads to itself
	laneGap    = 26
)

// box is a node with its place.
type box struct {
	Node
	index         int
	column        int
	x, y, w, h    float64
	left, right   []*line // the edges at its sides, from above
	loop          bool
	order, centre float64
}

// line is an edge with its place.
type line struct {
	Edge
	from, to   *box
	lane       bool // back over several columns: below all
	y1, y2     float64
	laneY      float64
	labelWidth float64
}

// back reports whether it leads to the left.
func (l *line) back() bool { return l.to.column < l.from.column }

// drawing is a graph with places for all of it.
type drawing struct {
	boxes         []*box
	lines         []*line
	width, height float64
}

// arrange gives a place to all of a graph: columns from left to right in the
// direction of the ways that lead on, and each part that is connected below the
// one before.
func arrange(g *Graph) *drawing {
	d := &drawing{}
	byID := map[string]*box{}
	for i, n := range g.Nodes {
		b := &box{Node: n, index: i}
		for j, text := range n.lines() {
			width := smallWidth
			if j == 0 {
				width = nameWidth
			}
			b.w = max(b.w, width*float64(utf8.RuneCountInString(text))+2*padding)
			b.h += lineHeight
		}
		b.h += padding
		byID[n.ID] = b
		d.boxes = append(d.boxes, b)
	}
	for _, e := range g.Edges {
		l := &line{Edge: e, from: byID[e.From], to: byID[e.To]}
		for _, text := range e.Labels {
			l.labelWidth = max(l.labelWidth, smallWidth*float64(utf8.RuneCountInString(text))+12)
		}
		d.lines = append(d.lines, l)
	}
	d.columns()
	for _, l := range d.lines {
		switch {
		case l.from == l.to:
			l.from.loop = true
			l.from.w = max(l.from.w, l.labelWidth)
		case l.from.column-l.to.column > 1 || l.from.column == l.to.column:
			l.lane = true
			l.from.right, l.to.left = append(l.from.right, l), append(l.to.left, l)
		case l.back():
			l.from.left, l.to.right = append(l.from.left, l), append(l.to.right, l)
		default:
			l.from.right, l.to.left = append(l.from.right, l), append(l.to.left, l)
		}
	}
	for _, b := range d.boxes {
		b.h = max(b.h, portsHeight(b.left, true)+padding, portsHeight(b.right, false)+padding)
	}
	d.horizontally()
	y := float64(margin)
	for _, part := range d.parts() {
		y = d.vertically(part, y)
	}
	d.height = y - rowGap + margin
	return d
}

// columns puts each node behind all that lead to it. Ways back do not count, nor
// does what closes a circle.
func (d *drawing) columns() {
	const under, done = 1, 2
	state := map[*box]int{}
	var visit func(b *box)
	var sorted []*box // ends first
	back := map[*line]bool{}
	visit = func(b *box) {
		state[b] = under
		for _, l := range d.lines {
			if l.from != b || l.Way == Returns {
				continue
			}
			switch state[l.to] {
			case 0:
				visit(l.to)
			case under:
				back[l] = true
			}
		}
		state[b] = done
		sorted = append(sorted, b)
	}
	for _, b := range d.boxes {
		if state[b] == 0 {
			visit(b)
		}
	}
	for _, b := range slices.Backward(sorted) {
		for _, l := range d.lines {
			if l.from == b && l.Way != Returns && !back[l] {
				l.to.column = max(l.to.column, b.column+1)
			}
		}
	}
}

// horizontally places the columns, with room for the labels between them.
func (d *drawing) horizontally() {
	last := 0
	for _, b := range d.boxes {
		last = max(last, b.column)
	}
	x := float64(margin)
	for _, l := range d.lines {
		if l.lane && l.to.column == 0 {
			x = margin + laneGap // it comes in from the left
		}
	}
	for c := range last + 1 {
		width, gap := 0.0, 0.0
		for _, b := range d.boxes {
			if b.column == c {
				width = max(width, b.w)
			}
		}
		for _, l := range d.lines {
			if !l.lane && max(l.from.column, l.to.column) == c+1 {
				gap = max(gap, l.labelWidth)
			}
		}
		for _, b := range d.boxes {
			if b.column == c {
				b.x, b.w = x, width
			}
		}
		x += width
		if c < last {
			x += gap + curve
		}
	}
	d.width = x + margin
	if slices.ContainsFunc(d.lines, func(l *line) bool { return l.lane }) {
		d.width += laneGap
	}
}

// parts are the nodes that are connected, in the order of the graph.
func (d *drawing) parts() [][]*box {
	var parts [][]*box
	seen := map[*box]bool{}
	for _, b := range d.boxes {
		if seen[b] {
			continue
		}
		seen[b] = true
		part := []*box{b}
		for i := 0; i < len(part); i++ { // grows while it is walked
			for _, l := range d.lines {
				for _, other := range [][2]*box{{l.from, l.to}, {l.to, l.from}} {
					if other[0] == part[i] && !seen[other[1]] {
						seen[other[1]] = true
						part = append(part, other[1])
					}
				}
			}
		}
		slices.SortFunc(part, func(a, b *box) int { return cmp.Compare(a.index, b.index) })
		parts = append(parts, part)
	}
	return parts
}

// portsHeight is what the edges at a side need; those at the left have labels.
func portsHeight(lines []*line, labelled bool) float64 {
	h := 0.0
	for _, l := range lines {
		h += portHeight(l, labelled)
	}
	return h
}

func portHeight(l *line, labelled bool) float64 {
	if labelled && !l.lane {
		return portGap + float64(max(0, len(l.Labels)-1))*lineHeight
	}
	return portGap
}
