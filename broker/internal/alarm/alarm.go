// Package alarm says when publishers have to wait because something has run short, and why
// (https://www.rabbitmq.com/docs/alarms).
package alarm

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Resource is what an alarm is about, by RabbitMQ's name for it.
type Resource string

// The resources. Store and Damage are none of RabbitMQ's: that goes down with its disk.
const (
	Memory Resource = "memory"
	Disk   Resource = "disk"
	Store  Resource = "store"
	Damage Resource = "damage"
)

// Alarm is something that runs short, and is enough again. The zero Alarm is not raised.
type Alarm struct {
	Resource Resource

	mu   sync.Mutex                    // held while it is raised or cleared
	over atomic.Pointer[chan struct{}] // nil: it is not raised
}

// Set raises the alarm, or clears it. It reports whether that is a change.
func (a *Alarm) Set(raised bool) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := a.over.Load()
	switch {
	case raised == (over != nil):
		return false
	case raised:
		c := make(chan struct{})
		a.over.Store(&c)
	default:
		a.over.Store(nil)
		close(*over)
	}
	return true
}

// Raised returns nil while there is enough, and else a channel that is closed when there is again. It is fast.
func (a *Alarm) Raised() <-chan struct{} {
	if over := a.over.Load(); over != nil {
		return *over
	}
	return nil
}

// Set is the alarms of a broker. The zero Set is never raised.
type Set []*Alarm

// Raised returns nil while no alarm is raised, and else a channel that is closed when one of those that are is not any more.
func (s Set) Raised() <-chan struct{} {
	for _, a := range s {
		if over := a.Raised(); over != nil {
			return over
		}
	}
	return nil
}

// Resources returns what has run short.
func (s Set) Resources() (all []Resource) {
	for _, a := range s {
		if a.Raised() != nil {
			all = append(all, a.Resource)
		}
	}
	return all
}

// Has reports whether something has run short.
func (s Set) Has(r Resource) bool { return slices.Contains(s.Resources(), r) }

// Reason is what blocked publishers are told.
func Reason(resources []Resource) string {
	var low []string
	for _, r := range resources {
		switch r {
		case Store:
			return "the disk has failed: nothing more is kept until the broker is restarted"
		case Damage:
			return "the data directory is damaged: nothing more is accepted until it is repaired"
		}
		low = append(low, string(r))
	}
	return "low on " + strings.Join(low, " & ")
}
