package terminal

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows a progress bar on a terminal. If stderr is not a terminal, it shows nothing.
//
//	sending  [###########.............]  46%  4612 of 10000  120/s, 45s left
type Progress struct {
	w     io.Writer // nil: no output
	what  string
	width int
	began time.Time
	shown time.Time
	first int64 // value of done in the first call of show
	drawn bool
}

// NewProgress returns a progress bar on the stderr of a command.
func NewProgress(streams IO, what string) *Progress {
	p := &Progress{what: what, began: time.Now(), first: -1}
	if Is(streams.Stderr) {
		p.w, p.width = streams.Stderr, cmp.Or(Width(streams.Stderr), 80)
	}
	return p
}

// redrawn is the minimum time between two updates of the bar.
const redrawn = 100 * time.Millisecond

// Show draws the bar. A total of 0 means unknown.
func (p *Progress) Show(done, total int64) {
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

// line returns the bar, truncated to the width of the terminal.
func (p *Progress) line(done, total int64, elapsed time.Duration) string {
	if total <= 0 {
		return Cut(fmt.Sprintf("%s  %d", p.what, done), p.width-1)
	}
	text := fmt.Sprintf("  %3d%%  %d of %d", min(100, 100*done/total), done, total)
	if rate := float64(done-p.first) / elapsed.Seconds(); rate > 0 && elapsed > time.Second && done < total {
		left := max(time.Second, time.Duration(float64(total-done)/rate*float64(time.Second)))
		text += fmt.Sprintf("  %s/s, %s left", twoDigits(rate), Roughly(left))
	}
	bar := min(30, p.width-1-len(p.what)-len(text)-4)
	if bar < 5 {
		return Cut(p.what+text, p.width-1)
	}
	full := int(int64(bar) * min(done, total) / total)
	return p.what + "  [" + strings.Repeat("#", full) + strings.Repeat(".", bar-full) + "]" + text
}

// End removes the bar.
func (p *Progress) End() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// twoDigits formats a number with at least two digits.
func twoDigits(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
