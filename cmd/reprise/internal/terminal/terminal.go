// Package terminal formats text for terminals, and replaces or escapes control characters.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Width returns the width of a terminal in columns, or 0 if the stream is not a terminal or its width is unknown.
func Width(stream any) int {
	if f, ok := stream.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// Cut shortens s to at most width columns. A shortened string ends with an ellipsis.
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

// Wrap breaks s between words into lines of at most width columns. A longer word gets its own line.
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

// Fill breaks a text into lines of at most width columns. All lines except the first are indented.
func Fill(s string, width, indent int) string {
	s = OneLine(s)
	if width <= indent+20 {
		return s
	}
	return strings.Join(Wrap(s, width-indent), "\n"+strings.Repeat(" ", indent))
}

// Plural returns n followed by the noun, such as "1 message" or "2 messages".
func Plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine returns s on one line. Line breaks and control characters become spaces, and adjacent spaces become one.
// Formatting characters (Unicode category Cf) are removed.
func OneLine(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		if unicode.Is(unicode.Cf, r) { // such as bidirectional controls
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

// WriteJSON writes value as JSON, followed by a line break. It also escapes control and formatting characters that
// package json does not escape, such as C1 controls.
func WriteJSON(w io.Writer, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var b []byte
	for _, r := range string(encoded) {
		switch {
		case !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// TextWidth returns the number of terminal columns that s occupies.
func TextWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth returns the number of terminal columns that r occupies. East Asian characters and emoji occupy two columns
// (see https://www.unicode.org/reports/tr11/).
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
