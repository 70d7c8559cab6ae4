package topology

import (
	"strings"
	"unicode/utf8"
)

// cut shortens s to at most limit bytes at a character boundary. It ends the result with an ellipsis
// if the ellipsis fits. cut first replaces bytes that are not valid UTF-8, because other programs read
// these texts as UTF-8.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	const ellipsis = "…"
	mark := ""
	if limit >= len(ellipsis) {
		mark = ellipsis
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
