// Package alarm reports whether publishers must wait, and for which resource (https://www.rabbitmq.com/docs/alarms).
package alarm

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Resource identifies the resource of an alarm. Memory and Disk are RabbitMQ's names.
type Resource string

// RabbitMQ has no counterparts of the other resources. It stops if its disk fails. Response is the resource of a disk that
// does not complete a commit.
const (
	Memory   Resource = "memory"
	Disk     Resource = "disk"
	Response Resource = "disk_response"
	Store    Resource = "store"
	Damage   Resource = "damage"
)

// Alarm is raised while a resource is low or damaged. The zero Alarm is not raised.
type Alarm struct {
	Resource Resource

	mu   sync.Mutex                    // held while Set raises or clears the alarm
	over atomic.Pointer[chan struct{}] // nil if the alarm is not raised
}

// Set raises or clears the alarm. It reports whether the alarm changed.
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

// Raised returns nil if the alarm is not raised. Otherwise, it returns a channel that is closed when the alarm is
// cleared. Raised does not block.
func (a *Alarm) Raised() <-chan struct{} {
	if over := a.over.Load(); over != nil {
		return *over
	}
	return nil
}

// Set contains the alarms of a broker. The zero Set has no alarms.
type Set []*Alarm

// Raised returns nil if no alarm is raised. Otherwise, it returns the channel of a raised alarm, which is closed when
// this alarm is cleared.
func (s Set) Raised() <-chan struct{} {
	for _, a := range s {
		if over := a.Raised(); over != nil {
			return over
		}
	}
	return nil
}

// Resources returns the resources whose alarms are raised.
func (s Set) Resources() (all []Resource) {
	for _, a := range s {
		if a.Raised() != nil {
			all = append(all, a.Resource)
		}
	}
	return all
}

// Has reports whether the alarm of the given resource is raised.
func (s Set) Has(r Resource) bool { return slices.Contains(s.Resources(), r) }

// Reason returns the reason that the broker sends to blocked publishers.
func Reason(resources []Resource) string {
	var low []string
	for _, r := range resources {
		switch r {
		case Response:
			continue
		case Store:
			return "the disk has failed; restart the broker to continue"
		case Damage:
			return "the data directory is damaged; repair it to continue"
		}
		low = append(low, string(r))
	}
	if len(low) == 0 {
		return "the disk is full or does not respond; publishing resumes when it responds"
	}
	return "low on " + strings.Join(low, " & ")
}
