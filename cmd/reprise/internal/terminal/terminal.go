// Package terminal writes text for people: on terminals, which have a width and obey what is
// written to them, and elsewhere.
package terminal

import (
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width is the width of a terminal; 0: it is none, or not known.
func Width(stream any) int {
	if f, ok := stream.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// Cut shortens a text to a width, the last of it being an ellipsis then.
func Cut(s string, width int) string {
	if TextWidth(s) <= width {
		return s
	}
	used, end := 0, 0
	for i, r := range s {
		if used+runeWidth(r) > width-1 {
			end = i
			break
		}
		used += runeWidth(r)
	}
	return strings.TrimRight(s[:end], " ") + "…"
}

// Wrap breaks a text between words, into lines of at most width if the words allow it.
func Wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && TextWidth(line)+1+TextWidth(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// Plural is a number of things: "1 message", "2 messages".
func Plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine makes any text one that a terminal shows in a line and does not obey.
func OneLine(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		if unicode.Is(unicode.Cf, r) { // what turns the direction of a line around, and the like
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// TextWidth is how many columns a terminal takes for a text.
func TextWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is how many columns a terminal takes for a letter: those of East Asia
// and pictures take two. https://www.unicode.org/reports/tr11/
func runeWidth(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
