package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// Control sequences.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[J"
	clearRight = "\x1b[K"
	upLines    = "\x1b[%dF" // to the first column, n lines up
)

// liveView redraws one frame in place. It does not take the whole screen: what
// was there before stays above, and the last frame stays when it ends.
type liveView struct {
	out    io.Writer
	colour bool
	size   func() (width, height int, err error)

	mu     sync.Mutex
	intro  intro
	last   []entry
	height int // of the frame on the screen
	ended  bool
}

// keepEntries is more than a frame shows.
const keepEntries = 40

func (v *liveView) begin(i intro) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.intro = i
	v.write(hideCursor)
}

func (v *liveView) attempt(e entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = append(v.last, e)
	if len(v.last) > keepEntries {
		v.last = v.last[1:]
	}
}

func (v *liveView) update(s state) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		s.last = v.last
		v.draw(s)
	}
}

// end leaves the tables on the screen, without the attempts: they would come
// between them and what is printed next.
func (v *liveView) end(s state) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return
	}
	v.ended = true
	s.last = nil
	v.draw(s)
	v.write(showCursor)
}

// draw replaces the frame on the screen, in one write: a terminal then shows
// no half of it.
func (v *liveView) draw(s state) {
	width, height, err := v.size()
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	width-- // the last column is left free: some terminals wrap when it is written to
	s.intro = v.intro
	lines := frame(s, width, height)
	if fits := max(1, height-1); len(lines) > fits {
		lines = lines[:fits] // what has left the screen cannot be redrawn
	}
	var out strings.Builder
	if v.height > 0 {
		fmt.Fprintf(&out, upLines, min(v.height, height-1))
	}
	for _, l := range lines {
		out.WriteString(l.render(width, v.colour) + clearRight + "\n")
	}
	out.WriteString(clearBelow)
	v.height = len(lines)
	v.write(out.String())
}

func (v *liveView) write(s string) {
	_, _ = io.WriteString(v.out, s) // when the terminal is gone, there is nobody to tell
}

// shape is how what follows the view is to be printed.
func (v *liveView) shape() (width int, colour bool) {
	width, _, err := v.size()
	if err != nil || width <= 0 {
		width = 80
	}
	return width - 1, v.colour
}
