package graph

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// SVG says how a graph is drawn.
type SVG struct {
	// Bare leaves the colours to the page that the drawing is put into: elements
	// have classes only, named as the constants of Kind and Way.
	Bare bool
}

const style = `<style>
svg{background:#fff}
text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#57606a}
.name{font-size:13px;fill:#1b1f24}
.count{fill:#1b1f24;font-weight:bold}
rect,polygon{stroke:#8c959f;fill:#fff}
.exchange polygon{fill:#eef2f7}.work rect{fill:#dcefe3}.wait rect{fill:#fdf1cf}.failed rect{fill:#fbe0dd}
path{fill:none;stroke:#57606a;stroke-width:1.2}
.head{fill:#57606a;stroke:none}
.returns path{stroke-dasharray:5 4}
.parked path{stroke:#b3261e}.parked .head{fill:#b3261e;stroke:none}
.returns .head{stroke-dasharray:none}
@media (prefers-color-scheme:dark){
svg{background:#0d1117}
text{fill:#9ea7b3}.name,.count{fill:#e6edf3}
rect,polygon{stroke:#57606a;fill:#161b22}
.exchange polygon{fill:#1c2430}.work rect{fill:#12301f}.wait rect{fill:#332a0d}.failed rect{fill:#3a1715}
path{stroke:#9ea7b3}.head{fill:#9ea7b3}
.parked path{stroke:#f47067}.parked .head{fill:#f47067}
}
</style>
`

// WriteSVG draws the graph. The drawing refers to nothing outside of itself, and
// follows the reader's preference for light or dark.
func (g *Graph) WriteSVG(w io.Writer, how SVG) error {
	d := arrange(g)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Queues and exchanges, and the ways of messages between them" `+
		`width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`+"\n", d.width, d.height, d.width, d.height)
	if !how.Bare {
		b.WriteString(style)
	}
	for _, l := range d.lines {
		l.draw(b)
	}
	for _, n := range d.boxes {
		n.draw(b)
	}
	b.WriteString("</svg>\n")
	return b.Flush()
}

func (b *box) draw(w io.Writer) {
	title := string(b.Kind) + " " + b.Name
	if b.Kind == Other {
		title = "queue " + b.Name
	}
	fmt.Fprintf(w, `<g class="node %s"><title>%s</title>`, b.Kind, escape(title))
	if b.Kind == Exchange {
		const c = 9
		x, y, r, bottom := b.x, b.y, b.x+b.w, b.y+b.h
		fmt.Fprintf(w, `<polygon points="%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f"/>`,
			x+c, y, r-c, y, r, y+b.h/2, r-c, bottom, x+c, bottom, x, y+b.h/2)
	} else {
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6"/>`, b.x, b.y, b.w, b.h)
	}
	lines := b.lines()
	y := b.y + b.h/2 - float64(len(lines)-1)*lineHeight/2 + 4
	for i, text := range lines {
		class := "note"
		switch {
		case i == 0:
			class = "name"
		case i == len(lines)-1 && b.Count != nil:
			class = "count"
		}
		fmt.Fprintf(w, `<text class="%s" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, class, b.x+b.w/2, y+float64(i)*lineHeight, escape(text))
	}
	fmt.Fprintln(w, "</g>")
}

func (l *line) draw(w io.Writer) {
	fmt.Fprintf(w, `<g class="edge %s">`, l.Way)
	switch {
	case l.from == l.to:
		l.drawLoop(w)
	case l.lane:
		l.drawLane(w)
	default:
		l.drawAcross(w)
	}
	fmt.Fprintln(w, "</g>")
}

// drawAcross leads from one column to another. At its right end it is level, with
// the labels on it.
func (l *line) drawAcross(w io.Writer) {
	left, y1, right, y2 := l.from, l.y1, l.to, l.y2
	if l.back() {
		left, y1, right, y2 = l.to, l.y2, l.from, l.y1
	}
	x1, x2 := left.x+left.w, right.x
	level := max(x2-l.labelWidth-14, x1+30)
	bend := (level - x1) / 2
	if l.back() {
		fmt.Fprintf(w, `<path d="M%.1f %.1fH%.1fC%.1f %.1f %.1f %.1f %.1f %.1f"/>`, x2, y2, level, level-bend, y2, x1+bend, y1, x1+6, y1)
		head(w, x1, y1, -1)
	} else {
		fmt.Fprintf(w, `<path d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1fH%.1f"/>`, x1, y1, x1+bend, y1, level-bend, y2, level, y2, x2-6)
		head(w, x2, y2, 1)
	}
	l.label(w, (level+x2)/2, y2-4)
}

// drawLane leads back below all that is in between.
func (l *line) drawLane(w io.Writer) {
	const r = 8
	x1, x2 := l.from.x+l.from.w, l.to.x
	out, in := x1+laneGap-6, x2-laneGap+6
	fmt.Fprintf(w, `<path d="M%.1f %.1fH%.1fQ%.1f %.1f %.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1fQ%.1f %.1f %.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1f"/>`,
		x1, l.y1, out-r, out, l.y1, out, l.y1+r, l.laneY-r, out, l.laneY, out-r, l.laneY,
		in+r, in, l.laneY, in, l.laneY-r, l.y2+r, in, l.y2, in+r, l.y2, x2-6)
	head(w, x2, l.y2, 1)
	l.label(w, (in+out)/2, l.laneY-5)
}

// drawLoop leads from a node to itself.
func (l *line) drawLoop(w io.Writer) {
	x, y := l.from.x+l.from.w/2, l.from.y+l.from.h
	fmt.Fprintf(w, `<path d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f"/>`, x+24, y, x+24, y+30, x-24, y+30, x-24, y+6)
	fmt.Fprintf(w, `<path class="head" d="M%.1f %.1fl-4 8h8z"/>`, x-24, y)
	l.label(w, x, y+36+float64(len(l.Labels)-1)*lineHeight)
}

// head is the end of an arrow at x, which points to the right (1) or left (-1).
func head(w io.Writer, x, y float64, direction int) {
	fmt.Fprintf(w, `<path class="head" d="M%.1f %.1fl%d -4v8z"/>`, x, y, -8*direction)
}

// label writes the labels of an edge, the last of them at y.
func (l *line) label(w io.Writer, x, y float64) {
	for i, text := range l.Labels {
		at := y - float64(len(l.Labels)-1-i)*lineHeight
		fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x, at, escape(text))
	}
}

// escape makes any text one of XML.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
