package reprisetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/inside"
)

// place is a queue of a virtual host.
type place struct{ vhost, queue string }

// String names the virtual host only where it must.
func (p place) String() string {
	if p.vhost == "/" {
		return p.queue
	}
	return fmt.Sprintf("%s (in virtual host %s)", p.queue, p.vhost)
}

// standing is what a queue has at a moment.
type standing struct {
	inside.Queue
	dies bool      // messages that expire in it are dead-lettered to a queue that is not at rest
	left bool      // it has no consumer, but the connection of an earlier consumer is open
	lost time.Time // time at which the connection of the last consumer was lost; zero: it was not
}

func (s standing) place() place { return place{s.VHost, s.Name} }

// consumed reports whether it has a consumer, or will have one again.
func (s standing) consumed() bool { return s.Consumers > 0 || s.left || !s.lost.IsZero() }

// underWay reports whether some of it is not at rest.
func (s standing) underWay() bool {
	switch {
	case s.Unacked > 0, s.Delayed > 0, s.Dead > 0, s.Leaving:
		return true
	}
	return s.Ready > 0 && (s.consumed() || s.dies && !s.Expires.IsZero())
}

// String says what it has; nothing, if there is nothing to say.
func (s standing) String() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(s.Ready, "ready")
	add(s.Unacked, "unacknowledged")
	add(s.Delayed, "waiting for a delayed retry")
	add(s.Dead, "dead-lettered to a queue that does not take them, or is not there")
	if parts == nil && !s.Leaving {
		return ""
	}
	if !s.Expires.IsZero() {
		parts = append(parts, "the next expires in "+time.Until(s.Expires).String())
	}
	switch n := s.Consumers; {
	case n == 1:
		add(n, "consumer")
	case n > 1:
		add(n, "consumers")
	case !s.lost.IsZero():
		parts = append(parts, fmt.Sprintf("no consumer since its connection was lost %s ago", time.Since(s.lost)))
	case s.left:
		parts = append(parts, "no consumer, but the connection is open that consumed from it")
	default:
		parts = append(parts, "no consumers")
	}
	return s.place().String() + ": " + strings.Join(parts, ", ")
}

// survey looks at all queues.
func (b *Broker) survey() []standing {
	var all []standing
	for _, q := range b.inside.Queues() {
		if q.Name != fullQueue {
			all = append(all, standing{Queue: q, dies: q.DeadLetters && !strings.HasSuffix(q.Name, ".failed")})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range all {
		if s := &all[i]; s.Consumers == 0 {
			s.lost = b.lost[s.place()]
			for c := range b.conns {
				s.left = s.left || c.consumed[s.place()]
			}
		}
	}
	return all
}

// forget has a queue no longer be one that is consumed from.
func (b *Broker) forget(p place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lost, p)
	for c := range b.conns {
		delete(c.consumed, p)
	}
}
