package demo

import (
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/term"
)

// view shows a run. Its methods are called from several goroutines.
type view interface {
	begin(intro)
	attempt(entry) // one attempt has ended
	update(state)  // several times a second
	end(state)     // nothing follows; whatever the view did to the terminal is undone
}

// intro is what does not change during a run.
type intro struct {
	broker     string // where the messages are
	retryDelay time.Duration
}

// state is what a view shows of a moment.
type state struct {
	intro   intro
	elapsed time.Duration
	phase   string
	target  int // events to come in all; 0 for no end
	queues  []queueState
	figures figures
	last    []entry // oldest first
}

// queueState is a queue and where its depth came from.
type queueState struct {
	Depth
	history []int // depths, oldest first, one per sample
}

// maxHistory is more samples than the widest terminal shows.
const maxHistory = 240

// push adds a sample.
func (q *queueState) push(d Depth) {
	q.Depth = d
	if len(q.history) == maxHistory {
		q.history = slices.Delete(q.history, 0, 1)
	}
	q.history = append(q.history, d.Ready+max(0, d.Unacked))
}

// newView returns the live view where out is a terminal, else lines.
func newView(o Options) view {
	if f, ok := o.Out.(*os.File); ok && !o.Plain && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) {
		return &liveView{
			out: f, colour: os.Getenv("NO_COLOR") == "",
			size: func() (int, int, error) { return term.GetSize(int(f.Fd())) },
		}
	}
	return &plainView{out: o.Out}
}

// plainView writes a line per attempt.
type plainView struct {
	mu  sync.Mutex
	out io.Writer
}

// Widths of what goes to a file: of texts, and of lines about an attempt, which
// have the whole error.
const (
	plainWidth = 100
	entryWidth = 200
)

func (v *plainView) begin(i intro) {
	for _, l := range introLines(i, plainWidth) {
		v.print(l)
	}
	v.print(line{})
}

func (v *plainView) attempt(e entry) { v.print(entryLine(e, entryWidth)) }

func (v *plainView) update(state) {}

func (v *plainView) end(s state) {
	v.print(line{})
	for _, l := range tableLines(s, plainWidth, false) {
		v.print(l)
	}
}

func (v *plainView) print(l line) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, _ = io.WriteString(v.out, l.render(entryWidth, false)+"\n") // when stdout is gone, there is nobody to tell
}
