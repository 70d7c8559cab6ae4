package workertest

import (
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// events is an Observer that records all events.
type events struct {
	mu  sync.Mutex
	all []reprise.Event
}

func (e *events) Observe(x reprise.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

// of returns the events of the given kinds, in order.
func (e *events) of(kinds ...reprise.EventKind) (some []reprise.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		if slices.Contains(kinds, x.Kind) {
			some = append(some, x)
		}
	}
	return some
}

// clock records the times of events, relative to the creation of the clock.
type clock struct {
	began time.Time
	mu    sync.Mutex
	at    []time.Duration
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.began))
}

func (c *clock) ticks() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at)
}
