package rehearsal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// outcome is the result of a message, as the workers report it.
type outcome struct {
	kind     reprise.EventKind // EventDone, EventDebounced or EventParked
	attempts int
}

// tally records the outcome of each message and prints it.
type tally struct {
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	ours     map[string]plannedEvent // by message id
	outcomes map[string]outcome
	changed  chan struct{} // closed and replaced when the outcome of a message in ours changes
}

func newTally(out io.Writer) *tally {
	return &tally{
		out: out, began: time.Now(), ours: map[string]plannedEvent{}, outcomes: map[string]outcome{},
		changed: make(chan struct{}),
	}
}

// expect records a message before it is published.
func (t *tally) expect(id string, p plannedEvent) {
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
		return
	}
	switch e.Kind {
	case reprise.EventDone:
		t.line(p, "done"+attempts(e.Attempt)+p.noted())
	case reprise.EventRetried:
		t.line(p, fmt.Sprintf("failed, retry in %s: %s", e.Delay, shown(e.Err)))
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

// change notifies the goroutines that wait for changed. The caller holds t.mu.
func (t *tally) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// line prints the result of an event. The caller holds t.mu.
func (t *tally) line(p plannedEvent, what string) {
	fmt.Fprintf(t.out, "%6.1f s  %-7s %-46s %s\n", time.Since(t.began).Seconds(), p.event, p.about, what)
}

// unsettled returns the number of published messages without an outcome, and a channel that is closed when an outcome
// changes.
func (t *tally) unsettled() (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ours) - len(t.outcomes), t.changed
}

func (p plannedEvent) noted() string {
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

// maxShown is the maximum length of an error in the output, in characters.
const maxShown = 60

// shown formats an error as one line of at most maxShown characters.
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
