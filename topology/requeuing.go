package topology

import (
	"errors"
	"maps"
	"time"
)

// Requeuing is the Route without a wait: a message that failed goes back into
// its queue as it is (basic.reject with requeue=true), and is delivered again at
// once. No copy is made, so nothing can be lost or doubled, and nothing can be
// written down; the delay that a Policy or a handler asks for is not used.
//
// It is for failures that another worker, or the same one a moment later, would
// not have. A downstream that is down is asked as fast as it can refuse.
//
// The queue counts the attempts, see Deliveries: it must be a quorum queue.
// Classic queues do not count, and would redeliver for ever; a message that
// comes from one a second time is parked. RabbitMQ's own delivery limit (20, since
// 4.0) would end the retries before the Policy does. The work queue is declared
// with one of 100 000: enough for a retry every second for a day, and an end, in
// {queue}.failed and without an error on it, for what nothing else has ended. A
// Policy that allows more attempts is cut short there.
//
// With Classic it is for classic queues, as programs use it that look at redelivered
// alone. The flag says "before", and not how often.
type Requeuing struct {
	// Classic declares the work queue as a classic queue, and counts attempts there: the
	// first time, a message is put back as it is; the second time (redelivered is set) by
	// a copy with the count on it, at the end of the queue, confirmed before the original
	// is acknowledged; the third time as it is, and so on. So with Policy.MaxAttempts 2,
	// once, no copy is made; with 3, twice, there is one, which can be there twice after
	// a crash. A delivery that ended with its worker counts as an attempt, but not a second
	// one in a row: nothing tells it from the first.
	Classic bool

	// Unlimited puts a message back as it is, without limit: redelivered is ignored, and
	// so are Policy.MaxAttempts above 2. Handlers end it with reprise.Park. It needs Classic.
	Unlimited bool
}

// Marks returns Deliveries, which count in the same way.
func (r Requeuing) Marks() Marks { return Deliveries{Classic: r.Classic} }

// Validate reports Unlimited without Classic: a quorum queue counts, and ends it.
func (r Requeuing) Validate() error {
	if r.Unlimited && !r.Classic {
		return errors.New("topology: Requeuing.Unlimited needs Classic (a quorum queue has a delivery limit)")
	}
	return nil
}

// ValidateQueue reports a work queue whose failed queue would have a name that
// no broker accepts.
func (Requeuing) ValidateQueue(queue string) error { return validateNames(queue, FailedQueue(queue)) }

// Topology returns the work queue and its failed queue. A work queue that exists
// with other arguments is not used as it is: RabbitMQ could drop from it what
// has come back too often.
func (r Requeuing) Topology(queue string) Topology {
	if r.Classic {
		return Topology{Queues: []Queue{{Name: queue, Args: Table{"x-queue-type": "classic"}}, failedQueue(FailedQueue(queue))}}
	}
	return requeuing(queue, nil)
}

// Wait returns the hop back into the queue. An error means that the queue does
// not count, and is not Classic.
func (r Requeuing) Wait(d Delivery, _ time.Duration) (Hop, error) {
	err := counted(d)
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

// lastLimit is the delivery limit of work queues that dead-letter to their failed
// queue: the last bound, should whoever counts attempts be mistaken.
const lastLimit = int64(100_000)

// requeuing is a work queue that gives a message back until lastLimit, with more
// arguments, and its failed queue.
func requeuing(queue string, more Table) Topology {
	args := quorum("", FailedQueue(queue)).with("x-delivery-limit", lastLimit)
	maps.Copy(args, more)
	return Topology{Queues: []Queue{{Name: queue, Args: args}, failedQueue(FailedQueue(queue))}}
}

// errUncounted is why a message of a classic queue is not given back again.
var errUncounted = errors.New("topology: the work queue does not count deliveries (no header x-delivery-count on one that came again), " +
	"so its messages would be retried for ever: make it a quorum queue, set Requeuing.Classic, or use a route that publishes copies, such as Buckets")

// counted reports a delivery of a queue that does not count: one that has been
// delivered before and does not say how often. RabbitMQ 4.3 says it in another
// header where the first one was given back on purpose; and 4.0 calls a dead
// letter redelivered that is new in this queue.
func counted(d Delivery) error {
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
