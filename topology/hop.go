package topology

import (
	"strconv"
	"time"
)

// Hop is the next station of a failed message.
type Hop struct {
	// Way is how it gets there. Where it is not Copy, nothing is published, and
	// all fields but Delay are zero.
	Way Way

	Exchange   string
	RoutingKey string
	TTL        time.Duration // the copy's own expiration; 0 for none. Whole milliseconds, rounded up.
	Delay      time.Duration // how long the message will in fact wait, for logs; 0 when it does not

	// Headers are written on the copy, over those it has, and are part of its
	// address: exchanges on its way look at them.
	Headers Table

	// Stations is in how many queues the copy expires on its way: the broker
	// writes an entry into its header x-death for each, for which there must be
	// room in the header frame. 0 counts as 1.
	Stations int

	// Topology must exist before the copy is published. It is declared on
	// first use of this exchange (of this key, where it is the default
	// exchange), once per connection, and again when publishing fails.
	Topology Topology
}

// Way is how a failed message gets to its next station.
type Way int

const (
	// Copy publishes a copy, and acknowledges the original when the broker has
	// confirmed it. The copy can be marked.
	Copy Way = iota

	// Requeue gives the delivery itself back to its queue: basic.reject with
	// requeue=true. Nothing can be written on it.
	Requeue

	// DeadLetter rejects the delivery, for the broker to dead-letter it as the
	// work queue says: basic.reject with requeue=false. Nothing can be written
	// on it; the broker counts in x-death.
	DeadLetter
)

// String returns the name of the constant.
func (w Way) String() string {
	switch w {
	case Copy:
		return "Copy"
	case Requeue:
		return "Requeue"
	case DeadLetter:
		return "DeadLetter"
	}
	return "Way(" + strconv.Itoa(int(w)) + ")"
}
