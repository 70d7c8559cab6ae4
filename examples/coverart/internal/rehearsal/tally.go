package rehearsal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// outcome is what became of a message, as far as the workers know.
type outcome struct {
	kind     reprise.EventKind // EventDone, EventDebounced or EventParked
	attempts int
}

// tally is told by the workers what becomes of each message, and tells it on.
type tally struct {
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	ours     map[string]planned // by message id
	outcomes map[string]outcome
	kinds    map[reprise.EventKind]int // of messages that others published
	changed  chan struct{}             // closed and replaced with whatever becomes of ours
}

func newTally(out io.Writer) *tally {
	return &tally{
		out: out, began: time.Now(), ours: map[string]planned{}, outcomes: map[string]outcome{},
		kinds: map[reprise.EventKind]int{}, changed: make(chan struct{}),
	}
}

// expect notes a message before it is published.
func (t *tally) expect(id string, p planned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours[id] = p
}

// Observe implements reprise.Observer.
func (t *tally) Observe(e reprise.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ours := t.ours[e.MessageID]
	if !ours {
		t.kinds[e.Kind]++
		return
	}
	switch e.Kind {
	case reprise.EventDone:
		t.line(p, "done"+attempts(e.Attempt)+p.noted())
	case reprise.EventRetried:
		t.line(p, fmt.Sprintf("failed, comes back in %s: %s", e.Delay, shown(e.Err)))
		t.change()
		return
	case reprise.EventParked:
		t.line(p, "parked"+attempts(e.Attempt)+": "+shown(e.Err))
	case reprise.EventDebounced:
	default:
		return
	}
	t.outcomes[e.MessageID] = outcome{kind: e.Kind, attempts: e.Attempt}
	t.change()
}

// change wakes who waits for one. t.mu is held.
func (t *tally) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// line tells what became of an event. t.mu is held.
func (t *tally) line(p planned, what string) {
	fmt.Fprintf(t.out, "%6.1f s  %-7s %-46s %s\n", time.Since(t.began).Seconds(), p.event, p.about, what)
}

// handled wraps a handler, and tells of messages that others published.
func (t *tally) handled(h reprise.HandlerFunc, event string) reprise.HandlerFunc {
	return func(ctx context.Context, m *reprise.Message) error {
		err := h(ctx, m)
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ours := t.ours[m.MessageID]; !ours {
			what := "done" + attempts(m.Attempt)
			if err != nil {
				what = fmt.Sprintf("failed%s: %s", attempts(m.Attempt), shown(err))
			}
			t.line(planned{event: event, about: fmt.Sprintf("%.42q", m.Body)}, what)
		}
		return err
	}
}

// unsettled returns how many messages nothing final is known of, and a channel that
// is closed when more is known of one.
func (t *tally) unsettled() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ours) - len(t.outcomes), t.changed
}

func (p planned) noted() string {
	if p.note == "" {
		return ""
	}
	return ": " + p.note
}

func attempts(n int) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" at attempt %d", n)
}

// maxShown is how much of an error fits beside the rest.
const maxShown = 60

// shown is an error in one line.
func shown(err error) string {
	if err == nil {
		return "no reason given"
	}
	text := []rune(strings.Join(strings.Fields(err.Error()), " "))
	if len(text) > maxShown {
		return string(text[:maxShown-1]) + "…"
	}
	return string(text)
}
