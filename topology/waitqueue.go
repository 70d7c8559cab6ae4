package topology

import (
	"errors"
	"fmt"
	"time"
)

// WaitQueue is the Route of systems with one wait queue. WaitExchange, usually a fanout exchange, routes copies to a queue
// in which all messages expire after the same time. Expired copies return through WorkExchange. They keep their routing
// key, which leads them to their work queue.
//
//	WorkExchange ─► work queue ─► handler ─► failed ─► WaitExchange ─► wait queue
//	      ▲                                                               │ expires after Delay
//	      └───────────────────────────────────────────────────────────────┘ key unchanged
//
// Every retry waits for Delay. WaitQueue ignores the delays of Policy and handlers. If WorkExchange routes a key to
// several queues, a retry reaches all of them. A message that was published directly to its queue (through the default
// exchange) returns with the key of a binding instead of its routing key. Address describes the limits of this
// substitution under {key}.
type WaitQueue struct {
	WorkExchange   string        // exchange through which expired copies return
	WaitExchange   string        // exchange that leads to the wait queue
	FailedExchange string        // exchange that leads to the failed queue
	Delay          time.Duration // delay of the wait queue that Infrastructure declares; at most MaxDelay

	// Infrastructure declares all objects, including the bindings through which WorkExchange reaches each work queue.
	Infrastructure Topology
}

// Validate reports missing names, an invalid Delay and a contradictory Infrastructure.
func (w WaitQueue) Validate() error {
	if w.WorkExchange == "" || w.WaitExchange == "" || w.FailedExchange == "" {
		return fmt.Errorf("topology: WaitQueue must have three exchanges: got WorkExchange %q, WaitExchange %q, FailedExchange %q",
			w.WorkExchange, w.WaitExchange, w.FailedExchange)
	}
	if w.Delay < 0 || w.Delay > MaxDelay {
		return fmt.Errorf("topology: WaitQueue.Delay must be between 0 and %s: got %s", MaxDelay, w.Delay)
	}
	return errors.Join(
		validateWait("WaitQueue.WaitExchange", w.WaitExchange, w.WorkExchange),
		validateWait("WaitQueue.FailedExchange", w.FailedExchange, w.WorkExchange),
		validateApart("WaitQueue.WaitExchange", "FailedExchange", w.WaitExchange == w.FailedExchange),
		validateLength("WaitQueue.WaitExchange", w.WaitExchange),
		validateLength("WaitQueue.FailedExchange", w.FailedExchange),
		w.Infrastructure.Validate())
}

// ValidateQueue reports a work queue that WorkExchange does not reach according to Infrastructure,
// because its retries would be lost.
func (w WaitQueue) ValidateQueue(queue string) error {
	return w.Infrastructure.validateReturnPath("WaitQueue", w.WorkExchange, queue)
}

// Topology returns the Infrastructure for every queue.
func (w WaitQueue) Topology(string) Topology { return w.Infrastructure }

// Wait returns the hop into the wait queue, with w.Delay.
func (w WaitQueue) Wait(d Delivery, _ time.Duration) (Hop, error) {
	return Hop{Exchange: w.WaitExchange, RoutingKey: w.Infrastructure.returnKey(w.WorkExchange, d), Delay: w.Delay, Topology: w.Infrastructure}, nil
}

// Failed returns the hop into the failed queue.
func (w WaitQueue) Failed(d Delivery) Hop {
	return Hop{Exchange: w.FailedExchange, RoutingKey: w.Infrastructure.returnKey(w.WorkExchange, d), Topology: w.Infrastructure}
}
