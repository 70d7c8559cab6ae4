package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// progress is a bar on a terminal that shows how far some work is. Where stderr is
// no terminal it shows nothing: the result is printed at the end, as ever.
//
//	sending  [###########.............]  46%  4612 of 10000  120/s, 45s left
type progress struct {
	w     io.Writer // nil: nowhere
	what  string
	width int
	began time.Time
	shown time.Time
	first int64 // done when it was first told
	drawn bool
}

// newProgress shows it on the stderr of a command.
func newProgress(streams IO, what string) *progress {
	p := &progress{what: what, began: time.Now(), first: -1}
	if terminal.Is(streams.Stderr) {
		p.w, p.width = streams.Stderr, cmp.Or(terminal.Width(streams.Stderr), 80)
	}
	return p
}

// redrawn is how often a bar is drawn at most.
const redrawn = 100 * time.Millisecond

// show draws how much is done of how much; a total of 0 is not known.
func (p *progress) show(done, total int64) {
	if p.first < 0 {
		p.first = done
	}
	now := time.Now()
	if p.w == nil || now.Sub(p.shown) < redrawn && done < total {
		return
	}
	p.shown, p.drawn = now, true
	fmt.Fprint(p.w, "\r"+p.line(done, total, now.Sub(p.began))+"\x1b[K")
}

// line is the bar as a text that fits the terminal.
func (p *progress) line(done, total int64, elapsed time.Duration) string {
	if total <= 0 {
		return terminal.Cut(fmt.Sprintf("%s  %d", p.what, done), p.width-1)
	}
	text := fmt.Sprintf("  %3d%%  %d of %d", min(100, 100*done/total), done, total)
	if rate := float64(done-p.first) / elapsed.Seconds(); rate > 0 && elapsed > time.Second && done < total {
		left := max(time.Second, time.Duration(float64(total-done)/rate*float64(time.Second)))
		text += fmt.Sprintf("  %s/s, %s left", tellable(rate), roughly(left))
	}
	bar := min(30, p.width-1-len(p.what)-len(text)-4)
	if bar < 5 {
		return terminal.Cut(p.what+text, p.width-1)
	}
	full := int(int64(bar) * min(done, total) / total)
	return p.what + "  [" + strings.Repeat("#", full) + strings.Repeat(".", bar-full) + "]" + text
}

// end takes the bar away.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// tellable is a number with two digits or more.
func tellable(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
