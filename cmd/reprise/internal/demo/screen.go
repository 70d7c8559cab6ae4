package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/preset"
)

// Widths of the output to a file or a pipe: for text, and for lines with complete errors.
const (
	plainWidth = 100
	errorWidth = 200
)

// screen prints lines. On a terminal, lines are cut to its width and, unless NO_COLOR is set, colored. The methods are
// safe for concurrent use.
type screen struct {
	width, most int // of text and of lines
	colour      bool

	mu  sync.Mutex
	out io.Writer
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, width: plainWidth, most: errorWidth}
	if width := terminal.Width(out); width > 0 && os.Getenv("TERM") != "dumb" {
		s.width, s.most, s.colour = width, width, os.Getenv("NO_COLOR") == ""
	}
	return s
}

func (s *screen) print(lines ...line) {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.render(s.most, s.colour) + "\n")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, out.String()) // an error cannot be printed either
}

// introLines returns lines that describe the run.
func introLines(broker string, retryDelay time.Duration, width int) []line {
	lines := []line{line{}.add(bold, "reprise demo").add(normal, " · the cover art indexer of MusicBrainz, on "+broker)}
	for _, row := range []struct {
		style      style
		name, text string
	}{
		{green, "work", "index, delete, move: simulated events for real releases"},
		{yellow, "failures", "the store sometimes responds with 503 SlowDown"},
		{yellow, "retries", fmt.Sprintf("through .retry after %s (4h in the real system), at most %d", retryDelay, preset.CoverArtRetries)},
		{red, "parked", "in .failed: a release that is always refused, invalid bodies"},
	} {
		lines = append(lines, wrapped(line{}.add(row.style, "  "+row.name).to(14), dim, row.text, width)...)
	}
	return append(lines, line{})
}

var roles = map[string]string{
	preset.CoverArtIndexQueue:  "writes index.json and metadata",
	preset.CoverArtDeleteQueue: "deletes an image",
	preset.CoverArtMoveQueue:   "copies an image, deletes the original",
	preset.CoverArtRetryQueue:  "delays retries",
	preset.CoverArtFailedQueue: "needs attention",
}

// queueLines returns a table of the queues.
func queueLines(depths map[string]int) []line {
	const ready, role = 25, 34 // columns
	lines := []line{{}, line{}.add(dim, "queue").to(ready).add(dim, "ready").to(role).add(dim, "purpose")}
	for _, name := range queueNames {
		lines = append(lines, line{}.add(normal, name).to(ready).add(normal, fmt.Sprintf("%5d", depths[name])).to(role).add(dim, roles[name]))
	}
	return lines
}

// attemptLine describes an attempt.
func attemptLine(a attempt, width int) line {
	about := 36
	if width < plainWidth {
		about = 28
	}
	note := shorten(a.note)
	if a.number > 1 {
		note = strings.TrimSpace(fmt.Sprintf("attempt %d  %s", a.number, note))
	}
	return line{}.add(dim, fmt.Sprintf("%5.1fs", a.at.Seconds())).to(8).
		add(map[string]style{outcomeDone: green, outcomeRetry: yellow, outcomeFailed: red}[a.outcome], a.outcome).to(16).
		add(normal, a.event).to(24).
		add(normal, terminal.Cut(a.about, about)).to(26+about).
		add(dim, note)
}
