package reprisetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
)

// flight is an attempt between its beginning and what becomes of the message. A
// worker that acknowledges first and then publishes the copy has it, for a
// moment, in its own memory only: the broker knows nothing of it.
type flight struct {
	queue, id string
	attempt   int
}

// journey is how many attempts there are of the kind: duplicates are alike.
type journey struct {
	attempts int
	since    time.Time // when the first began
	handled  bool      // the handler has returned
}

func (f flight) String() string {
	id := "a message without an id"
	if f.id != "" {
		id = fmt.Sprintf("message %q", f.id)
	}
	return fmt.Sprintf("%s of %s, attempt %d", id, f.queue, f.attempt)
}

// observer follows the attempts of a client's workers.
type observer struct {
	broker *Broker
	next   reprise.Observer // or nil
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
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventGivenBack, reprise.EventDropped, reprise.EventLost:
		if j.attempts--; j.attempts > 0 {
			b.flights[f] = j
		} else {
			delete(b.flights, f)
		}
	}
	b.mu.Unlock()
	b.stir()
}

// flying reports whether there is an attempt whose message has not been settled.
func (b *Broker) flying() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.flights) > 0
}

// aloft lists those attempts.
func (b *Broker) aloft() []string {
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
		all = append(all, fmt.Sprintf("%s: %s, begun %s ago", f, doing, time.Since(j.since)))
	}
	return all
}
