package topology

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// DefaultDeadLetteringDelay is the default of DeadLettering.Delay.
const DefaultDeadLetteringDelay = time.Minute

// DeadLettering is the Route that leaves everything to the broker: a message
// that failed is rejected (basic.reject with requeue=false), and the work queue
// dead-letters it into a wait queue, which dead-letters it back. No copy is
// made, so there is none to confirm, and nothing can be written down; the broker
// counts the attempts, see Deaths.
//
//	work queue ─► handler ─► rejected ─► {queue}.retry ─ expires after Delay ─► work queue
//
// Every retry waits Delay: the delay a Policy or a handler asks for is not used.
//
// A queue without a dead-letter exchange drops what is rejected. So a work queue
// that exists with other arguments is not used as it is, but reported. It is
// declared without a delivery limit to speak of: what RabbitMQ gives up on goes
// into the wait queue too, and is dropped on the way back, as a cycle in which
// nobody rejected it (https://www.rabbitmq.com/docs/dlx#routing).
//
// In a system that is there already, Infrastructure is what it consists of. What
// is rejected keeps its key on the whole way, unless a queue has an
// x-dead-letter-routing-key: a message put into the work queue by name has one
// that RetryExchange, here, would drop it for. No copy is made that could be given
// another; bind the queues by that name, too, as preset.WorkRetry does, or use
// MessageTTL where such messages are to be expected.
//
//	topology.DeadLettering{
//		Delay:         5 * time.Minute,
//		FailedAddress: topology.Address{Exchange: "FailedExchange", Key: "{key}"},
//		WorkExchange:  "WorkExchange",
//		Infrastructure: topology.Topology{
//			Exchanges: …, // WorkExchange, RetryExchange, FailedExchange
//			Queues: []topology.Queue{
//				{Name: "WorkQueue", Args: topology.Table{"x-dead-letter-exchange": "RetryExchange"}},
//				{Name: "RetryQueue", Args: topology.Table{"x-dead-letter-exchange": "WorkExchange", "x-message-ttl": 300000}},
//				…
//			},
//			Bindings: …,
//		},
//	}
type DeadLettering struct {
	// Delay is how long the wait queue holds a message: its x-message-ttl, in
	// whole milliseconds. Default 1 min. With an Infrastructure it is only told
	// to the logger.
	Delay time.Duration

	FailedAddress Address // default: the queue {queue}.failed

	// WorkExchange is where the wait queue's messages expire to, for {key} in
	// the FailedAddress.
	WorkExchange string

	// Infrastructure declares all of it. Left empty, the work queue, the queue
	// {queue}.retry and the failed queue are declared.
	Infrastructure Topology
}

func (r DeadLettering) withDefaults() DeadLettering {
	r.Delay = cmp.Or(r.Delay, DefaultDeadLetteringDelay)
	r.FailedAddress = r.FailedAddress.or("{queue}.failed")
	return r
}

// Validate reports a delay that no queue has, an address that leads nowhere, and
// a contradictory Infrastructure.
func (r DeadLettering) Validate() error {
	r = r.withDefaults()
	err := validateDelay("DeadLettering.Delay", r.Delay, time.Millisecond, "1ms", DefaultDeadLetteringDelay)
	if r.Infrastructure.empty() {
		return errors.Join(err, r.FailedAddress.validate("DeadLettering.FailedAddress"))
	}
	return errors.Join(err, validateLength("DeadLettering.FailedAddress.Key", r.FailedAddress.Key),
		validateLength("DeadLettering.FailedAddress.Exchange", r.FailedAddress.Exchange), r.Infrastructure.Validate())
}

// ValidateQueue reports a work queue that would drop what is rejected, one that
// WorkExchange does not lead back to, and one whose other queues would have names
// that no broker accepts.
func (r DeadLettering) ValidateQueue(queue string) error {
	r = r.withDefaults()
	for _, q := range r.Infrastructure.Queues {
		if q.Name != queue {
			continue
		}
		exchange, found := q.Args["x-dead-letter-exchange"].(string)
		if !found {
			return fmt.Errorf("topology: DeadLettering.Infrastructure declares the work queue %q without x-dead-letter-exchange: "+
				"it would drop what is rejected, so name the exchange that leads to the wait queue", queue)
		}
		if err := r.Infrastructure.validateDeadLetters(exchange); err != nil {
			return err
		}
	}
	if r.Infrastructure.empty() && r.FailedAddress.queue(queue) == retryQueue(queue) {
		return fmt.Errorf("topology: DeadLettering.FailedAddress is the wait queue %q, so that what is parked would come back: name another, such as %q", retryQueue(queue), "{queue}.failed")
	}
	return errors.Join(
		r.FailedAddress.notInto("DeadLettering.FailedAddress", queue, r.WorkExchange),
		r.Infrastructure.validateWayBack("DeadLettering", r.WorkExchange, queue),
		validateNames(queue, retryQueue(queue), r.FailedAddress.queue(queue)))
}

// Marks returns Deaths.
func (DeadLettering) Marks() Marks { return Deaths{} }

// Topology returns the Infrastructure; without one, the work queue, its wait
// queue and its failed queue.
func (r DeadLettering) Topology(queue string) Topology {
	if !r.Infrastructure.empty() {
		return r.Infrastructure
	}
	r = r.withDefaults()
	work := Queue{Name: queue, Args: quorum("", retryQueue(queue)).with("x-delivery-limit", unlimited)}
	wait := waitQueue(retryQueue(queue), "", queue)
	wait.Args["x-message-ttl"] = r.Delay.Milliseconds()
	return Topology{Queues: []Queue{wait, failedQueue(r.FailedAddress.queue(queue)), work}}
}

// Wait returns the hop into the wait queue; its delay is always r.Delay. A message
// with an x-death that no broker has written is not rejected: an error.
func (r DeadLettering) Wait(d Delivery, _ time.Duration) (Hop, error) {
	if err := rejectable(d); err != nil {
		return Hop{}, err
	}
	return Hop{Way: DeadLetter, Delay: r.withDefaults().Delay}, nil
}

// Failed returns the hop into the failed queue.
func (r DeadLettering) Failed(d Delivery) Hop {
	r = r.withDefaults()
	return r.Infrastructure.hop(r.FailedAddress, d, r.WorkExchange, failedQueue(r.FailedAddress.queue(d.Queue)))
}

// retryQueue is the name of a work queue's wait queue.
func retryQueue(queue string) string { return queue + ".retry" }
