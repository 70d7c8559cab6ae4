package cli

import (
	"fmt"
	"strings"
)

// plot draws a plan: a row for each attempt that is shown, time going to the
// right. It is empty for a message that is parked at once.
//
//	attempt 1 ●       ·          ·
//	        2 ·  ━━━━━·          ·
//	        3 ·       · ━━━━━    ·
//	   parked ·       · ×××××    ·
//	          0s      1s         10s
func plot(p plan, width int) string {
	if p.end() == 0 {
		return ""
	}
	axis := newAxis(p, width-plotMargin)
	var out strings.Builder
	row := func(label, line string) {
		fmt.Fprintf(&out, "%*s %s\n", len("attempt 1"), label, strings.TrimRight(line, " "))
	}
	for _, r := range p.shown() {
		switch r.attempt {
		case 0:
			row("…", string(axis.grid()))
		case 1:
			row("attempt 1", axis.draw(r.at, '●', '━'))
		default:
			row(fmt.Sprint(r.attempt), axis.draw(r.at, '●', '━'))
		}
	}
	row("parked", axis.draw(p.parked.at, '×', '×'))
	row("", axis.labels())
	return out.String()
}

// What is beside a plot: the numbers of attempts with a blank, and what may stick
// out of the last label of the axis.
const (
	labelOverhang = 3
	plotMargin    = len("attempt 1 ") + labelOverhang
)

// draw is a line with a window in it.
func (a axis) draw(w window, exact, between rune) string {
	line := a.grid()
	from, to := a.column(w.low), a.column(w.high)
	for i := from; i <= to; i++ {
		line[i] = between
	}
	if w.exact() {
		line[from] = exact
	}
	return string(line)
}
