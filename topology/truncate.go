package topology

import (
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
)

// truncate shortens s to at most limit bytes at character boundaries, by omitting the middle. It first replaces invalid
// UTF-8, because other programs expect valid UTF-8.
func truncate(s string, limit int) string {
	return brief.Excerpt(strings.ToValidUTF8(s, "\uFFFD"), limit)
}
