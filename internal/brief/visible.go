package brief

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible replaces invalid UTF-8 and odd characters (see Odd), such as control characters and characters that change
// the direction of text, with escape sequences. Line breaks and tabs remain. Templates must escape the result.
func Visible(s string) string {
	if !strings.ContainsFunc(s, Odd) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Odd(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case Odd(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// Odd reports whether a character is invisible or changes the appearance of other characters. Line breaks, tabs and
// joiners are not odd.
func Odd(r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return false
	case r == '\u200c' || r == '\u200d': // required by Persian text and by many emoji
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// Clip cuts s after n characters. A shortened string ends with an ellipsis.
func Clip(s string, n int) string {
	count := 0
	for i := range s {
		if count == n {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// Quoted returns s in quotation marks, for a sentence. It cuts s after 255 characters, the length of the longest name in
// AMQP. Odd characters and line breaks become escape sequences. Everything else remains as it was written, in contrast to
// the format %q, which changes quotation marks and backslashes.
func Quoted(s string) string {
	return "“" + lineBreaks.Replace(Visible(Clip(s, 255))) + "”"
}

var lineBreaks = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)
