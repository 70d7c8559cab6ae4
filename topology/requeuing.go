package topology

import (
	"errors"
	"maps"
	"time"
)

// Requeuing is the Route without a delay. The worker requeues a failed message unchanged (basic.reject with requeue=true),
// and the broker redelivers it immediately. Without Classic, the worker does not publish a copy for a retry, so it cannot
// lose or duplicate the message, and it cannot write headers. Requeuing ignores the delays of Policy and handlers.
//
// Use it for failures that are unlikely to occur again on another worker, or a moment later. Do not use it for an
// unavailable downstream service, which would receive calls as fast as it rejects them.
//
// Without Classic, the queue counts the attempts (see Deliveries), so it must be a quorum queue. A classic queue does not
// count deliveries and would redeliver a message forever, so the worker parks a redelivered message that fails again. The
// default delivery limit of RabbitMQ (20, since 4.0) could stop the retries before the Policy does. The work queue is
// therefore declared with a limit of 100 000, which permits a retry every second for a day. If a message exceeds this
// limit, the broker moves it to {queue}.failed, without recording an error. The limit also applies to a Policy that permits
// more attempts.
//
// Classic supports classic queues and programs that use only the redelivered flag. The flag reports an
// earlier delivery, but not the number of deliveries.
type Requeuing struct {
	// Classic declares the work queue as a classic queue and counts attempts as follows. The worker requeues a message
	// unchanged after the first failure. After the second failure (redelivered is set), it publishes a copy, which contains
	// the count, to the end of the queue, and acknowledges the original after the confirm. The third failure is handled like
	// the first, and so on. With Policy.MaxAttempts 2, the worker does not publish a copy for a retry. With 3, it publishes
	// one copy, which a crash can duplicate. A delivery whose worker terminated counts as an attempt. A second such delivery
	// in a row does not count, because the worker cannot distinguish it from the first.
	Classic bool

	// Unlimited requeues a message unchanged without limit. It ignores the redelivered flag and a
	// Policy.MaxAttempts above 2. Handlers end the retries with reprise.Park. Unlimited requires
	// Classic.
	Unlimited bool
}

// Marks returns Deliveries with the same value of Classic.
func (r Requeuing) Marks() Marks { return Deliveries{Classic: r.Classic} }

// Validate returns an error for Unlimited without Classic, because a quorum queue limits deliveries.
func (r Requeuing) Validate() error {
	if r.Unlimited && !r.Classic {
		return errors.New("topology: Requeuing.Unlimited must be false without Classic (a quorum queue has a delivery limit)")
	}
	return nil
}

// ValidateQueue reports a work queue whose failed queue would have an invalid name.
func (Requeuing) ValidateQueue(queue string) error { return validateNames(queue, FailedQueue(queue)) }

// Topology returns the work queue and its failed queue. A work queue that exists with different arguments is an error,
// because RabbitMQ could drop its messages after too many deliveries.
func (r Requeuing) Topology(queue string) Topology {
	if r.Classic {
		return Topology{Queues: []Queue{{Name: queue, Args: Table{"x-queue-type": "classic"}}, failedQueue(FailedQueue(queue))}}
	}
	return requeuing(queue, nil)
}

// Wait returns the hop back into the queue. It returns an error if the queue does not count deliveries
// and Classic is false.
func (r Requeuing) Wait(d Delivery, _ time.Duration) (Hop, error) {
	err := checkCounted(d)
	switch {
	case !r.Classic:
		return Hop{Way: Requeue}, err
	case err != nil && !r.Unlimited:
		return Hop{RoutingKey: d.Queue, Topology: r.Topology(d.Queue)}, nil
	}
	return Hop{Way: Requeue}, nil
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (Requeuing) Failed(d Delivery) Hop { return failed(d.Queue) }

// fallbackLimit is the delivery limit of the work queues of Requeuing and DelayedRetry. It stops the retries if the
// count of attempts is wrong.
const fallbackLimit = int64(100_000)

// requeuing returns a work queue with the delivery limit fallbackLimit and additional arguments, and its failed queue.
func requeuing(queue string, more Table) Topology {
	args := quorum("", FailedQueue(queue)).with("x-delivery-limit", fallbackLimit)
	maps.Copy(args, more)
	return Topology{Queues: []Queue{{Name: queue, Args: args}, failedQueue(FailedQueue(queue))}}
}

// errUncounted is returned for a message that must not be requeued again because its queue is classic.
var errUncounted = errors.New("topology: redelivered message has no header x-delivery-count, so the number of retries is unknown (use a quorum queue, set Requeuing.Classic, or use a route that publishes copies, such as Buckets)")

// checkCounted returns an error if the delivery is a redelivery without a count. RabbitMQ 4.3 uses another header if the
// first delivery was requeued deliberately. RabbitMQ 4.0 sets redelivered on a dead letter even at its first delivery from a
// queue, so checkCounted accepts a message with x-death.
func checkCounted(d Delivery) error {
	if !d.Redelivered {
		return nil
	}
	for _, header := range []string{headerDeliveryCount, headerAcquiredCount, headerDeath} {
		if _, found := d.Headers[header]; found {
			return nil
		}
	}
	return errUncounted
}
