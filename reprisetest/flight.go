package reprisetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
)

// flight identifies an attempt that has started and whose message is not settled yet. If a worker acknowledges a message
// before it publishes the copy, the message is briefly only in the memory of the worker.
type flight struct {
	queue, id string
	attempt   int
}

// journey is the state of all attempts with the same flight. Duplicates have the same flight.
type journey struct {
	attempts int
	since    time.Time // start of the first attempt
	handled  bool      // the handler has returned
}

func (f flight) String() string {
	id := "a message without an id"
	if f.id != "" {
		id = fmt.Sprintf("message %q", f.id)
	}
	return fmt.Sprintf("%s of %s, attempt %d", id, f.queue, f.attempt)
}

// observer records the attempts of a client's workers.
type observer struct {
	broker *Broker
	next   reprise.Observer // may be nil
}

// Observe implements reprise.Observer.
func (o *observer) Observe(e reprise.Event) {
	o.broker.follow(e)
	if o.next != nil {
		o.next.Observe(e)
	}
}

func (b *Broker) follow(e reprise.Event) {
	f := flight{e.Queue, e.MessageID, e.Attempt}
	b.mu.Lock()
	j, found := b.flights[f]
	switch e.Kind {
	case reprise.EventStarted:
		if !found {
			j.since = time.Now()
		}
		j.attempts++
		b.flights[f] = j
	case reprise.EventHandled:
		if found {
			j.handled = true
			b.flights[f] = j
		}
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventRequeued, reprise.EventDropped, reprise.EventLost:
		if j.attempts--; j.attempts > 0 {
			b.flights[f] = j
		} else {
			delete(b.flights, f)
		}
	}
	b.mu.Unlock()
	b.notify()
}

// hasUnsettled reports whether the message of at least one attempt is not settled.
func (b *Broker) hasUnsettled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.flights) > 0
}

// unsettled lists the attempts whose message is not settled.
func (b *Broker) unsettled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, f := range slices.SortedFunc(maps.Keys(b.flights), func(f, g flight) int {
		return cmp.Compare(f.String(), g.String())
	}) {
		j := b.flights[f]
		doing := "being handled"
		if j.handled {
			doing = "handled and not yet settled"
		}
		all = append(all, fmt.Sprintf("%s: %s, started %s ago", f, doing, time.Since(j.since)))
	}
	return all
}
