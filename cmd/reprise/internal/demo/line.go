package demo

import (
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// style is a parameter of the control sequence for colors and intensity (SGR).
type style string

const (
	normal style = ""
	dim    style = "2"
	bold   style = "1"
	green  style = "32"
	yellow style = "33"
	red    style = "31"
	cyan   style = "36"
)

// line is a line of styled text.
type line []struct {
	text  string
	style style
}

func (l line) add(s style, text string) line {
	return append(l, struct {
		text  string
		style style
	}{text, s})
}

// to pads the line with spaces up to column.
func (l line) to(column int) line {
	return l.add(normal, strings.Repeat(" ", max(0, column-l.width())))
}

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += terminal.TextWidth(s.text)
	}
	return n
}

// render returns the line without trailing spaces, cut to width columns and, if colour is set, with control sequences.
func (l line) render(width int, colour bool) string {
	var out strings.Builder
	cut := l.width() > width
	for _, s := range l {
		text := s.text
		n := terminal.TextWidth(text)
		if cut && n >= width {
			text = terminal.Cut(text+" ", width)
		}
		if colour && s.style != normal && strings.TrimSpace(text) != "" {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		out.WriteString(text)
		if width -= n; width <= 0 {
			break
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// wrapped appends text to head and breaks it into lines of width columns, or more if head leaves fewer than 20 columns.
func wrapped(head line, s style, text string, width int) (lines []line) {
	margin := head.width()
	for _, text := range terminal.Wrap(text, max(20, width-margin)) {
		lines = append(lines, head.add(s, text))
		head = line{}.to(margin)
	}
	return lines
}
