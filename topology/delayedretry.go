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

// DelayedRetry is the Route that uses the delayed retry of RabbitMQ. The worker requeues a failed message unchanged
// (basic.reject with requeue=true), and the queue delays the redelivery. The worker does not publish a copy, does not need
// another queue for retries, and cannot write headers. https://www.rabbitmq.com/docs/quorum-queues#delayed-retry
//
// The queue sets the delay, which grows linearly: Min after the first failure, twice Min after the second, and so on, up to
// Max. DelayedRetry ignores the delays of Policy and handlers. A retry is never early, is late by a few milliseconds, and
// does not wait for other retries.
//
// DelayedRetry needs a quorum queue on RabbitMQ 4.3.3 or later. Topology.Needs declares this requirement, because
// earlier versions accept and ignore the arguments, and would redeliver messages immediately. In all other respects,
// DelayedRetry behaves like Requeuing without Classic.
//
// Min and Max are arguments of the work queue, so they cannot be changed once the queue exists.
type DelayedRetry struct {
	Min time.Duration // first delay, and the increment of each further delay; whole milliseconds, default 10 s
	Max time.Duration // longest delay; whole milliseconds, default 1 h, or Min if that is longer
}

func (r DelayedRetry) withDefaults() DelayedRetry {
	r.Min = cmp.Or(r.Min, DefaultDelayedRetryMin)
	r.Max = cmp.Or(r.Max, max(r.Min, DefaultDelayedRetryMax))
	return r
}

// Validate reports invalid delays. RabbitMQ accepts some invalid delays, and then does not delay any message.
func (r DelayedRetry) Validate() error {
	r = r.withDefaults()
	if err := validateDelay("DelayedRetry.Min", r.Min, time.Millisecond, "1ms", DefaultDelayedRetryMin); err != nil {
		return err
	}
	return validateDelay("DelayedRetry.Max", r.Max, max(r.Min, time.Millisecond), fmt.Sprintf("Min (%s)", r.Min), DefaultDelayedRetryMax)
}

// Marks returns Deliveries.
func (DelayedRetry) Marks() Marks { return Deliveries{} }

// ValidateQueue reports a work queue whose failed queue would have an invalid name.
func (DelayedRetry) ValidateQueue(queue string) error {
	return validateNames(queue, FailedQueue(queue))
}

// Topology returns the work queue, with the delays as arguments, and its failed queue. A work queue that exists with
// different arguments is an error.
func (r DelayedRetry) Topology(queue string) Topology {
	r = r.withDefaults()
	t := requeuing(queue, Table{
		"x-delayed-retry-type": "failed", // deliveries that were requeued deliberately are not delayed
		"x-delayed-retry-min":  r.Min.Milliseconds(),
		"x-delayed-retry-max":  r.Max.Milliseconds(), // without this argument, the maximum would be Min
	})
	t.Needs = "4.3.3"
	return t
}

// Wait returns the hop back into the queue, with the delay that the queue will apply. It returns an
// error if the queue does not count deliveries.
func (r DelayedRetry) Wait(d Delivery, _ time.Duration) (Hop, error) {
	r = r.withDefaults()
	delay := r.Max
	if n := time.Duration(deliveryCount(d)) + 1; n <= r.Max/r.Min {
		delay = n * r.Min
	}
	return Hop{Way: Requeue, Delay: delay}, checkCounted(d)
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (DelayedRetry) Failed(d Delivery) Hop { return failed(d.Queue) }
