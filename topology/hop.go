package topology

import (
	"strconv"
	"time"
)

// Hop is the next step on the path of a failed message.
type Hop struct {
	// Way specifies how the message reaches its next queue. If Way is not Copy, the worker does not publish a copy, and
	// all other fields except Delay are zero.
	Way Way

	Exchange   string
	RoutingKey string
	TTL        time.Duration // expiration of the copy in whole milliseconds, rounded up; 0 for none
	Delay      time.Duration // actual wait of the message; 0 if it does not wait

	// Headers are added to the copy, and replace existing headers of the same names. Exchanges on the path may route
	// by them.
	Headers Table

	// Stations is the number of queues on the path in which the copy expires. For each of them, the broker adds an entry
	// to the header x-death, so the worker leaves room for these entries in the header frame. 0 counts as 1.
	Stations int

	// Topology must exist before the copy is published. The worker declares it once per connection,
	// before the first publish to the exchange (or to the routing key, for the default exchange), and
	// again if a publish fails.
	Topology Topology
}

// Way specifies how a failed message reaches its next queue.
type Way int

const (
	// Copy publishes a copy, and acknowledges the original after the broker has confirmed the copy (with
	// reprise.AckThenPublish, before the worker publishes the copy). Marks can write headers on the copy.
	Copy Way = iota

	// Requeue returns the delivery to its queue (basic.reject with requeue=true). Marks cannot write headers on the
	// message.
	Requeue

	// DeadLetter rejects the delivery (basic.reject with requeue=false), and the broker dead-letters it according to the
	// arguments of the work queue. Marks cannot write headers on the message. The broker counts the rejections in the
	// header x-death.
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
