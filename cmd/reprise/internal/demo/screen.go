package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/reprisemq/reprise/topology/preset"
)

// Control sequences.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[J"
	upLines    = "\x1b[%dF" // to the first column, n lines up
)

// Widths of output that is not a terminal: of text, and of lines with complete errors.
const (
	plainWidth = 100
	errorWidth = 200
)

// screen prints lines. In a terminal it keeps a footer with the state below them. Its
// methods may be called concurrently.
type screen struct {
	out    io.Writer
	colour bool
	size   func() (width, height int, err error) // nil: no terminal

	mu     sync.Mutex
	footer []line
	height int // of the footer on the terminal
}

func newScreen(o Options) *screen {
	s := &screen{out: o.Out}
	if f, ok := o.Out.(*os.File); ok && !o.Plain && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) {
		s.colour = os.Getenv("NO_COLOR") == ""
		s.size = func() (int, int, error) { return term.GetSize(int(f.Fd())) }
	}
	return s
}

// terminal returns the room for lines. The last column stays free, because some
// terminals wrap after it.
func (s *screen) terminal() (width, height int) {
	width, height, err := s.size()
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	return width - 1, height - 1
}

func (s *screen) width() int {
	if s.size == nil {
		return plainWidth
	}
	width, _ := s.terminal()
	return width
}

// print prints lines above the footer.
func (s *screen) print(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(lines)
}

// update replaces the footer.
func (s *screen) update(state state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size != nil {
		width, _ := s.terminal()
		s.footer = footerLines(state, width)
		s.draw(nil)
	}
}

// end removes the footer and prints the last lines.
func (s *screen) end(lines []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.footer = nil
	s.draw(append([]line{{}}, lines...))
	if s.size != nil {
		s.write(showCursor)
	}
}

// draw writes everything at once: a terminal never shows half of it.
func (s *screen) draw(lines []line) {
	var out strings.Builder
	width := errorWidth
	if s.size != nil {
		var height int
		width, height = s.terminal()
		if len(s.footer) > 0 {
			out.WriteString(hideCursor)
		}
		if s.height > 0 {
			fmt.Fprintf(&out, upLines+clearBelow, s.height)
		}
		s.footer = s.footer[:min(len(s.footer), max(0, height))] // lines that left the screen cannot be replaced
		s.height = len(s.footer)
	}
	for _, l := range append(lines, s.footer...) {
		out.WriteString(l.render(width, s.colour) + "\n")
	}
	s.write(out.String())
}

func (s *screen) write(text string) {
	_, _ = io.WriteString(s.out, text) // a closed terminal has no reader for an error
}

// introLines describe the run.
func introLines(broker string, retryDelay time.Duration, width int) []line {
	lines := []line{line{}.add(bold, "reprise demo").add(normal, " · the cover art indexer of MusicBrainz, on "+broker)}
	for _, row := range []struct {
		style      style
		name, text string
	}{
		{green, "work", "index, delete, move: cover art of real releases, simulated"},
		{yellow, "fails", "now and then, the store answers 503 SlowDown"},
		{yellow, "comes back", fmt.Sprintf("from .retry after %s (4h in the real system), %d times at most", retryDelay, preset.CoverArtRetries)},
		{red, "ends", "in .failed: a release always refused, invalid bodies"},
	} {
		lines = append(lines, wrapped(line{}.add(row.style, "  "+row.name).to(14), dim, row.text, width)...)
	}
	return append(lines, line{})
}

// queue is a queue and its depth over time.
type queue struct {
	name    string
	depth   int
	history []int // oldest first, one per sample
}

// maxHistory is more than the widest terminal shows.
const maxHistory = 240

func (q *queue) push(depth int) {
	q.depth = depth
	q.history = append(q.history, depth)
	q.history = q.history[max(0, len(q.history)-maxHistory):]
}

var roles = map[string]string{
	preset.CoverArtIndexQueue:  "writes index.json and metadata",
	preset.CoverArtDeleteQueue: "deletes an image",
	preset.CoverArtMoveQueue:   "copies an image, deletes the old",
	preset.CoverArtRetryQueue:  "waits, then back to its queue",
	preset.CoverArtFailedQueue: "for a person to look at",
}

var queueStyles = map[string]style{preset.CoverArtRetryQueue: yellow, preset.CoverArtFailedQueue: red}

// Columns of the table of queues.
const (
	colReady = 25
	colLast  = 34
)

func queueLines(queues []queue) []line {
	return queueTable(queues, "what it does", func(q queue) string { return roles[q.name] })
}

// queueTable has a last column of the caller.
func queueTable(queues []queue, title string, last func(queue) string) []line {
	lines := []line{line{}.add(dim, "queue").to(colReady).add(dim, "ready").to(colLast).add(dim, title)}
	for _, q := range queues {
		number, name, text := normal, queueStyles[q.name], dim
		if q.depth == 0 {
			number, name = dim, normal
		}
		if title != "what it does" {
			text = queueStyles[q.name]
		}
		lines = append(lines, line{}.add(name, q.name).to(colReady).add(number, fmt.Sprintf("%5d", q.depth)).to(colLast).add(text, last(q)))
	}
	return lines
}

// footerLines show the queues, and the messages as numbers and as a bar.
func footerLines(s state, width int) []line {
	lines := append([]line{{}}, queueTable(s.queues, "depth over time", func(q queue) string { return sparkline(q.history, width-colLast) })...)
	in := fmt.Sprintf("in %d", s.in)
	if s.target > 0 {
		in = fmt.Sprintf("in %d of %d", s.in, s.target)
	}
	counts := line{}.add(bold, in).add(normal, "  =  ").
		add(green, fmt.Sprintf("%d done", s.done)).add(normal, "  +  ").
		add(red, fmt.Sprintf("%d failed", s.failed)).add(normal, "  +  ").
		add(yellow, fmt.Sprintf("%d waiting", s.waiting())).
		add(dim, fmt.Sprintf("    %d retries", s.retries))
	seconds := int(s.elapsed.Seconds())
	clock := fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
	counts = counts.to(width-len(clock)).add(dim, clock)

	total := max(s.target, s.in, 1)
	bar := line{}
	for _, part := range []struct {
		style style
		rune  string
		upTo  int // number of messages of this and the parts before
	}{
		{green, "█", s.done},
		{red, "▓", s.done + s.failed},
		{yellow, "▒", s.done + s.failed + s.waiting()},
		{dim, "·", total},
	} {
		bar = bar.add(part.style, strings.Repeat(part.rune, max(0, width*part.upTo/total-bar.width())))
	}
	lines = append(lines, line{}, counts, bar)
	if s.phase != "" {
		lines = append(lines, line{}.add(bold, s.phase))
	}
	return lines
}

// sparkline draws the newest samples. The scale is absolute up to 8 messages.
func sparkline(history []int, width int) string {
	history = history[max(0, len(history)-max(0, width)):]
	top := 8
	for _, n := range history {
		top = max(top, n)
	}
	var out strings.Builder
	for _, n := range history {
		out.WriteRune([]rune(" ▁▂▃▄▅▆▇█")[(n*8+top-1)/top])
	}
	return out.String()
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
		add(normal, fit(a.about, about)).to(26+about).
		add(dim, note)
}
