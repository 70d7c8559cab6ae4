package topology

import (
	"strings"
	"unicode/utf8"
)

// truncate shortens s to at most limit bytes at a character boundary. A shortened string ends with an ellipsis if limit
// permits. truncate first replaces invalid UTF-8, because other programs expect valid UTF-8.
func truncate(s string, limit int) string {
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
