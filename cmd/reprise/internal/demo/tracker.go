package demo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology/preset"
)

// Outcomes of an attempt, as they are shown.
const (
	outcomeDone   = "done"
	outcomeRetry  = "retry"
	outcomeFailed = "failed"
)

// entry is one attempt, for people.
type entry struct {
	at      time.Duration // since the start
	outcome string
	event   string
	about   string // title of the release
	note    string // the error, or what the indexer remarked
	attempt int
}

// figures are the counts of a moment. waiting = in - done - failed.
type figures struct {
	in, done, failed int // messages
	attempts, retry  int // attempts, and those of them that were to come back
	running          int // handlers
}

func (f figures) waiting() int { return max(0, f.in-f.done-f.failed) }

// tracker watches the handlers.
type tracker struct {
	began  time.Time
	titles titles
	tell   func(entry) // called one at a time

	mu      sync.Mutex
	counts  figures
	in      map[string]bool // ids the broker confirmed, and whether they were settled
	settled map[string]bool // ids that were settled before their confirm was seen
	done    map[string]int  // id → handlers that returned nil
	bursts  map[string]bool // ids that another message stood for
	about   map[string]string
}

func newTracker(t titles, tell func(entry)) *tracker {
	return &tracker{
		began: time.Now(), titles: t, tell: tell,
		in: map[string]bool{}, settled: map[string]bool{}, done: map[string]int{}, bursts: map[string]bool{}, about: map[string]string{},
	}
}

// published is called with what the broker confirmed.
func (t *tracker) published(id string, e planned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.about[id] = t.titles.of(e.event, e.body)
	t.in[id] = t.settled[id]
	delete(t.settled, id)
	t.counts.in++
}

// watch wraps a handler.
func (t *tracker) watch(event string, h reprise.HandlerFunc) reprise.HandlerFunc {
	return func(ctx context.Context, m *reprise.Message) error {
		t.mu.Lock()
		t.counts.running++
		t.mu.Unlock()
		var remark string
		err := h(context.WithValue(ctx, remarkKey{}, &remark), m)
		t.attempted(ctx, event, m, remark, err)
		return err
	}
}

func (t *tracker) attempted(ctx context.Context, event string, m *reprise.Message, remark string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.running--
	if err != nil && ctx.Err() != nil {
		return // interrupted: not an attempt, and the message is given back
	}
	t.counts.attempts++
	e := entry{
		at: time.Since(t.began), event: event, attempt: m.Attempt,
		about: t.titles.of(event, m.Body), note: remark,
	}
	_, parked := errors.AsType[*reprise.ParkError](err)
	switch {
	case err == nil:
		e.outcome = outcomeDone
		t.done[m.MessageID]++
		if t.settle(m.MessageID) {
			t.counts.done++
		}
	case parked || m.Attempt > preset.CoverArtRetries:
		e.outcome, e.note = outcomeFailed, err.Error()
		if t.settle(m.MessageID) {
			t.counts.failed++
		}
	default:
		e.outcome, e.note = outcomeRetry, err.Error()
		t.counts.retry++
	}
	t.tell(e)
}

// Observe implements reprise.Observer. Of a burst, handlers see one message: what
// becomes of the others is told here.
func (t *tracker) Observe(e reprise.Event) {
	if e.Kind != reprise.EventDebounced {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bursts[e.MessageID] = true
	if t.settle(e.MessageID) {
		t.counts.done++
	}
	t.tell(entry{
		at: time.Since(t.began), outcome: outcomeDone, event: strings.TrimPrefix(e.Queue, preset.CoverArtExchange+"."), attempt: e.Attempt,
		about: t.about[e.MessageID], note: "one of a burst, the last of it stands for all",
	})
}

// settle tells whether it is the first time.
func (t *tracker) settle(id string) bool {
	settled, known := t.in[id]
	if settled || t.settled[id] {
		return false
	}
	if known {
		t.in[id] = true
	} else {
		t.settled[id] = true
	}
	return true
}

func (t *tracker) figures() figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// handled returns, by message, how often a handler returned nil.
func (t *tracker) handled() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.done)
}

// debounced returns the messages that another one stood for.
func (t *tracker) debounced() map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.bursts)
}

type remarkKey struct{}

// remarks is a slog.Handler that gives what the indexer logs to the attempt
// that it logs it in, and hands it on.
type remarks struct{ slog.Handler }

// Enabled implements slog.Handler: remarks are wanted, whoever else listens.
func (remarks) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (r remarks) Handle(ctx context.Context, record slog.Record) error {
	if remark, ok := ctx.Value(remarkKey{}).(*string); ok {
		*remark = record.Message
	}
	if !r.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return r.Handler.Handle(ctx, record)
}
