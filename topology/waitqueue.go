package topology

import (
	"errors"
	"fmt"
	"time"
)

// WaitQueue is the Route of systems with one wait queue: a fanout exchange in
// front of a queue whose messages all expire after the same time, back into
// the exchange the work is published to. A copy keeps its routing key on the
// whole way, which is how it finds its queue again.
//
//	WorkExchange ─► work queue ─► handler ─► failed ─► WaitExchange ─► wait queue
//	      ▲                                                               │ expires after Delay
//	      └───────────────────────────────────────────────────────────────┘ key unchanged
//
// Every retry waits Delay: the delay a Policy or a handler asks for is not
// used. And where WorkExchange routes one key to several queues, a retry
// reaches all of them. A message that was put into its queue by name returns
// under a key that is bound there; what is possible is said of {key} in Address.
type WaitQueue struct {
	WorkExchange   string        // what the expired copies return through
	WaitExchange   string        // in front of the wait queue
	FailedExchange string        // in front of the failed queue
	Delay          time.Duration // how long the wait queue holds a message, as declared below; at most MaxDelay; told to the logger

	// Infrastructure declares all of it, and names the keys by which
	// WorkExchange reaches each work queue.
	Infrastructure Topology
}

// Validate reports missing names, a Delay that no queue has, and a contradictory
// Infrastructure.
func (w WaitQueue) Validate() error {
	if w.WorkExchange == "" || w.WaitExchange == "" || w.FailedExchange == "" {
		return fmt.Errorf("topology: WaitQueue needs the names of three exchanges: WorkExchange %q, WaitExchange %q, FailedExchange %q",
			w.WorkExchange, w.WaitExchange, w.FailedExchange)
	}
	if w.Delay < 0 || w.Delay > MaxDelay {
		return fmt.Errorf("topology: WaitQueue.Delay %s: use 0 to %s", w.Delay, MaxDelay)
	}
	return errors.Join(
		validateWait("WaitQueue.WaitExchange", w.WaitExchange, w.WorkExchange),
		validateWait("WaitQueue.FailedExchange", w.FailedExchange, w.WorkExchange),
		validateApart("WaitQueue.WaitExchange", "FailedExchange", w.WaitExchange == w.FailedExchange, fmt.Sprintf("both %q", w.WaitExchange)),
		validateLength("WaitQueue.WaitExchange", w.WaitExchange),
		validateLength("WaitQueue.FailedExchange", w.FailedExchange),
		w.Infrastructure.Validate())
}

// ValidateQueue reports a work queue that WorkExchange does not lead to, as far
// as Infrastructure says: its retries would be lost.
func (w WaitQueue) ValidateQueue(queue string) error {
	return w.Infrastructure.validateWayBack("WaitQueue", w.WorkExchange, queue)
}

// Topology returns the whole infrastructure, whichever the queue.
func (w WaitQueue) Topology(string) Topology { return w.Infrastructure }

// Wait returns the hop into the wait queue; its delay is always w.Delay.
func (w WaitQueue) Wait(d Delivery, _ time.Duration) (Hop, error) {
	return Hop{Exchange: w.WaitExchange, RoutingKey: w.Infrastructure.wayBack(w.WorkExchange, d), Delay: w.Delay, Topology: w.Infrastructure}, nil
}

// Failed returns the hop into the failed queue.
func (w WaitQueue) Failed(d Delivery) Hop {
	return Hop{Exchange: w.FailedExchange, RoutingKey: w.Infrastructure.wayBack(w.WorkExchange, d), Topology: w.Infrastructure}
}
