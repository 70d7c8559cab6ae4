package demo

import (
	"strings"
	"unicode/utf8"
)

// style is how a piece of a line looks. The meaning never hangs on it alone.
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

// span is text of one style, without control characters.
type span struct {
	text  string
	style style
}

// line is a line of a terminal. Widths are counted in characters: the texts
// that are shown here have no wide ones.
type line []span

func (l line) add(s style, text string) line { return append(l, span{text, s}) }

// to fills up with blanks until column.
func (l line) to(column int) line {
	if n := column - l.width(); n > 0 {
		return l.add(normal, strings.Repeat(" ", n))
	}
	return l
}

func (l line) width() int {
	n := 0
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

// render returns at most width characters, coloured or not, and no blanks at
// the end: a line that wraps would spoil every line below it.
func (l line) render(width int, colour bool) string {
	var out strings.Builder
	room := width
	for i, s := range l {
		rest := l[i+1:].width()
		text := s.text
		if utf8.RuneCountInString(text) > room || utf8.RuneCountInString(text) == room && rest > 0 {
			text = fit(text+strings.Repeat(" ", rest), room)
		}
		room -= utf8.RuneCountInString(text)
		if colour && s.style != normal && strings.TrimSpace(text) != "" {
			text = "\x1b[" + string(s.style) + "m" + text + "\x1b[0m"
		}
		out.WriteString(text)
		if room <= 0 {
			break
		}
	}
	return strings.TrimRight(out.String(), " ")
}

// fit cuts text to width characters, with an ellipsis where it was cut.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}
	return strings.TrimRight(string([]rune(text)[:width-1]), " ") + "…"
}

// wrap breaks a text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case current == "":
			current = word
		case utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) <= width:
			current += " " + word
		default:
			lines = append(lines, current)
			current = word
		}
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
