package topology

import (
	"cmp"
	"fmt"
	"time"
)

// Defaults of DelayedRetry.
const (
	DefaultDelayedRetryMin = 10 * time.Second
	DefaultDelayedRetryMax = time.Hour
)

// DelayedRetry is the Route through RabbitMQ's own delayed retry: a message that
// failed goes back into its queue as it is (basic.reject with requeue=true), and
// the queue keeps it aside for a while. No copy is made, no other queue is
// needed, and nothing can be written down.
// https://www.rabbitmq.com/docs/quorum-queues#delayed-retry
//
// The queue sets the delay, and it grows evenly: Min after the first failure,
// twice Min after the second, and so on, at most Max. The delay that a Policy or
// a handler asks for is not used. None is early, each a few milliseconds late,
// and none waits for another.
//
// It needs a quorum queue of RabbitMQ 4.3.3 or later. Older ones accept the arguments
// and do nothing about them, so that messages would come back at once; Topology.Needs
// says so. Otherwise what is said of Requeuing holds here, too.
//
// Both numbers are arguments of the work queue and cannot be changed later.
type DelayedRetry struct {
	Min time.Duration // first delay, and what each adds to the one before; whole milliseconds, default 10 s
	Max time.Duration // longest delay; whole milliseconds, default 1 h
}

func (r DelayedRetry) withDefaults() DelayedRetry {
	r.Min = cmp.Or(r.Min, DefaultDelayedRetryMin)
	r.Max = cmp.Or(r.Max, max(r.Min, DefaultDelayedRetryMax))
	return r
}

// Validate reports delays that a queue cannot be given. RabbitMQ would accept
// them, and delay nothing.
func (r DelayedRetry) Validate() error {
	r = r.withDefaults()
	if err := validateDelay("DelayedRetry.Min", r.Min, time.Millisecond, "1ms", DefaultDelayedRetryMin); err != nil {
		return err
	}
	return validateDelay("DelayedRetry.Max", r.Max, max(r.Min, time.Millisecond), fmt.Sprintf("Min (%s)", r.Min), DefaultDelayedRetryMax)
}

// Marks returns Deliveries.
func (DelayedRetry) Marks() Marks { return Deliveries{} }

// ValidateQueue reports a work queue whose failed queue would have a name that
// no broker accepts.
func (DelayedRetry) ValidateQueue(queue string) error {
	return validateNames(queue, FailedQueue(queue))
}

// Topology returns the work queue, with the delays as its arguments, and its
// failed queue. A work queue that exists with other arguments is not used as it
// is.
func (r DelayedRetry) Topology(queue string) Topology {
	r = r.withDefaults()
	t := requeuing(queue, Table{
		"x-delayed-retry-type": "failed", // not those that were given back on purpose
		"x-delayed-retry-min":  r.Min.Milliseconds(),
		"x-delayed-retry-max":  r.Max.Milliseconds(), // left out, it would be Min
	})
	t.Needs = "4.3.3"
	return t
}

// Wait returns the hop back into the queue, with the delay that the queue will
// make. An error means that the queue does not count.
func (r DelayedRetry) Wait(d Delivery, _ time.Duration) (Hop, error) {
	r = r.withDefaults()
	delay := r.Max
	if n := time.Duration(deliveryCount(d)) + 1; n <= r.Max/r.Min {
		delay = n * r.Min
	}
	return Hop{Way: Requeue, Delay: delay}, counted(d)
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (DelayedRetry) Failed(d Delivery) Hop { return failed(d.Queue) }
