// Package alarm says when publishers have to wait because something has run short, and why
// (https://www.rabbitmq.com/docs/alarms).
package alarm

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Alarm is something that runs short, and is enough again.
type Alarm interface {
	// Alarm returns nil while there is enough, and else a channel that is closed when there is again. It is asked often,
	// and must be fast.
	Alarm() <-chan struct{}
}

// Resource is what an alarm is about, by RabbitMQ's name for it.
type Resource string

// The resources. Store and Damage are none of RabbitMQ's: that goes down with its disk.
const (
	Memory Resource = "memory"
	Disk   Resource = "disk"
	Store  Resource = "store"
	Damage Resource = "damage"
)

// Set is the alarms of a broker. The zero Set is never raised.
type Set []Entry

// Entry is an alarm in a set.
type Entry struct {
	Resource Resource
	Alarm    Alarm
}

// Raised returns nil while no alarm is raised, and else a channel that is closed when one of those that are is not any more.
func (s Set) Raised() <-chan struct{} {
	for _, e := range s {
		if over := e.Alarm.Alarm(); over != nil {
			return over
		}
	}
	return nil
}

// Resources returns what has run short.
func (s Set) Resources() (all []Resource) {
	for _, e := range s {
		if e.Alarm.Alarm() != nil {
			all = append(all, e.Resource)
		}
	}
	return all
}

// Has reports whether something has run short.
func (s Set) Has(r Resource) bool {
	for _, e := range s {
		if e.Resource == r && e.Alarm.Alarm() != nil {
			return true
		}
	}
	return false
}

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

// Switch is an alarm that is raised and cleared by hand. The zero Switch is not raised.
type Switch struct {
	mu   sync.Mutex                    // held while it is thrown
	over atomic.Pointer[chan struct{}] // nil: it is not raised
}

// Set raises the alarm, or clears it. It reports whether that is a change.
func (s *Switch) Set(raised bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.over.Load()
	switch {
	case raised == (over != nil):
		return false
	case raised:
		c := make(chan struct{})
		s.over.Store(&c)
	default:
		s.over.Store(nil)
		close(*over)
	}
	return true
}

// Alarm implements [Alarm].
func (s *Switch) Alarm() <-chan struct{} {
	if over := s.over.Load(); over != nil {
		return *over
	}
	return nil
}
