package reprisetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/queue"
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
	place
	stats   queue.Stats
	outlook queue.Outlook
	dies    bool      // what expires in it is dead-lettered, and on its way
	left    bool      // it has no consumer, but the connection is open of one that it had
	lost    time.Time // it has no consumer since the connection of the last one was lost; zero: not so
}

// consumed reports whether it has a consumer, or will have one again.
func (s standing) consumed() bool { return s.stats.Consumers > 0 || s.left || !s.lost.IsZero() }

// underWay reports whether some of it is not at rest.
func (s standing) underWay() bool {
	switch {
	case s.stats.Unacked > 0, s.stats.Delayed > 0, s.stats.Dead > 0, s.outlook.Leaving:
		return true
	}
	return s.stats.Ready > 0 && (s.consumed() || s.dies && !s.outlook.Expires.IsZero())
}

// String says what it has; nothing, if there is nothing to say.
func (s standing) String() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(s.stats.Ready, "ready")
	add(s.stats.Unacked, "unacknowledged")
	add(s.stats.Delayed, "waiting for a delayed retry")
	add(s.stats.Dead, "dead-lettered to a queue that does not take them, or is not there")
	if parts == nil && !s.outlook.Leaving {
		return ""
	}
	if !s.outlook.Expires.IsZero() {
		parts = append(parts, "the next expires in "+time.Until(s.outlook.Expires).String())
	}
	switch n := s.stats.Consumers; {
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
	return s.place.String() + ": " + strings.Join(parts, ", ")
}

// survey looks at all queues.
func (b *Broker) survey() []standing {
	var all []standing
	for _, v := range b.node.VHosts() {
		for _, q := range v.Queues() {
			if q.Name() == fullQueue {
				continue
			}
			all = append(all, standing{
				place: place{v.Name(), q.Name()}, stats: q.Stats(), outlook: q.Outlook(),
				dies: q.Config().DeadLetter != nil && !strings.HasSuffix(q.Name(), ".failed"),
			})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range all {
		if s := &all[i]; s.stats.Consumers == 0 {
			s.lost = b.lost[s.place]
			for c := range b.conns {
				s.left = s.left || c.consumed[s.place]
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
