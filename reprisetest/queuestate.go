package reprisetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/testhook"
)

// place identifies a queue in a virtual host.
type place struct{ vhost, queue string }

// String returns the name of the queue, and the virtual host if it is not "/".
func (p place) String() string {
	if p.vhost == "/" {
		return p.queue
	}
	return fmt.Sprintf("%s (in virtual host %s)", p.queue, p.vhost)
}

// queueState is the state of a queue at one moment.
type queueState struct {
	testhook.Queue
	movesExpired bool      // expired messages are dead-lettered, and the queue is not a failed queue
	left         bool      // no consumer, but the connection of an earlier consumer is open
	lost         time.Time // time at which the connection of the last consumer was lost; zero: not lost
}

func (s queueState) place() place { return place{s.VHost, s.Name} }

// consumed reports whether the queue has a consumer, or is expected to have a consumer again.
func (s queueState) consumed() bool { return s.Consumers > 0 || s.left || !s.lost.IsZero() }

// inFlight reports whether the queue has messages that are not at rest.
func (s queueState) inFlight() bool {
	if isHeld(s.Name) && s.Unacked+s.Ready <= 2 { // only the marker and the proof of the owner
		return false
	}
	switch {
	case s.Unacked > 0, s.Delayed > 0, s.Dead > 0, s.Leaving:
		return true
	}
	return s.Ready > 0 && (s.consumed() || s.movesExpired && !s.Expires.IsZero())
}

// isHeld reports whether a queue is the held queue of a partition; see reprise.Keyed.
func isHeld(queue string) bool {
	rest, held := strings.CutSuffix(queue, consume.HeldQueue(""))
	return held && strings.Contains(rest, ".part.")
}

// String describes the messages of the queue. It returns "" if the queue is empty.
func (s queueState) String() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(s.Ready, "ready")
	add(s.Unacked, "unacknowledged")
	add(s.Delayed, "waiting for a delayed retry")
	add(s.Dead, "dead-lettered to a queue that rejects them or does not exist")
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
		parts = append(parts, "no consumer, but the connection of an earlier consumer is open")
	default:
		parts = append(parts, "no consumers")
	}
	return s.place().String() + ": " + strings.Join(parts, ", ")
}

// survey returns the state of all queues.
func (b *Broker) survey() []queueState {
	var all []queueState
	for _, q := range b.inside.Queues() {
		if q.Name != fullQueue {
			all = append(all, queueState{Queue: q, movesExpired: q.DeadLetters && !strings.HasSuffix(q.Name, ".failed")})
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

// forget ensures that a queue does not count as consumed because of earlier consumers.
func (b *Broker) forget(p place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lost, p)
	for c := range b.conns {
		delete(c.consumed, p)
	}
}
