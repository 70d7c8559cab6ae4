package demo

import (
	"maps"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// Outcomes of an attempt, as displayed.
const (
	outcomeDone   = "done"
	outcomeRetry  = "retry"
	outcomeFailed = "failed"
)

// attempt is one attempt, for display.
type attempt struct {
	at      time.Duration // since the start
	outcome string
	event   string
	about   string // title of the release
	note    string // the error, or a remark of the handler
	number  int
}

// counts counts messages, except for retries (attempts) and running (handlers).
type counts struct{ in, done, failed, retries, running int }

func (c counts) waiting() int { return max(0, c.in-c.done-c.failed) }

// tracker observes the workers.
type tracker struct {
	began time.Time
	note  func(id string) string
	print func(attempt) // one call at a time

	mu        sync.Mutex
	counts    counts
	events    map[string]event // by message id
	settled   map[string]bool
	debounced map[string]bool // replaced by an equal message
}

func newTracker(note func(id string) string, show func(attempt)) *tracker {
	return &tracker{
		began: time.Now(), note: note, print: show,
		events: map[string]event{}, settled: map[string]bool{}, debounced: map[string]bool{},
	}
}

// publishing must be called before an event is published, and the method confirmed after the broker has confirmed it.
func (t *tracker) publishing(id string, e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events[id] = e
}

func (t *tracker) confirmed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.in++
}

// Observe implements reprise.Observer.
func (t *tracker) Observe(e reprise.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case reprise.EventStarted:
		t.counts.running++
	case reprise.EventHandled:
		t.counts.running--
	case reprise.EventDone:
		t.settle(e, outcomeDone, &t.counts.done, t.note(e.MessageID))
	case reprise.EventDebounced:
		t.debounced[e.MessageID] = true
		t.settle(e, outcomeDone, &t.counts.done, "debounced: replaced by a later equal event")
	case reprise.EventParked:
		t.settle(e, outcomeFailed, &t.counts.failed, e.Err.Error())
	case reprise.EventRetried:
		t.counts.retries++
		t.show(e, outcomeRetry, e.Err.Error())
	}
}

// settle counts a message once, even if it is redelivered.
func (t *tracker) settle(e reprise.Event, outcome string, count *int, note string) {
	if !t.settled[e.MessageID] {
		t.settled[e.MessageID] = true
		*count++
	}
	t.show(e, outcome, note)
}

func (t *tracker) show(e reprise.Event, outcome, note string) {
	published := t.events[e.MessageID]
	t.print(attempt{
		at: time.Since(t.began), outcome: outcome, event: published.kind, about: published.about, note: note, number: e.Attempt,
	})
}

func (t *tracker) snapshot() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// duplicates returns the debounced messages.
func (t *tracker) duplicates() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.debounced)
}
