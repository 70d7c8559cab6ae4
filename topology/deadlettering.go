package topology

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// DefaultDeadLetteringDelay is the default of DeadLettering.Delay.
const DefaultDeadLetteringDelay = time.Minute

// DeadLettering is the Route in which the broker moves messages to the wait queue and back. The worker rejects a failed
// message (basic.reject with requeue=false). The work queue dead-letters the message into a wait queue, and the wait queue
// dead-letters it back. For a retry, the worker does not publish a copy, so it does not wait for a confirm and cannot write
// headers. The broker counts the attempts (see Deaths).
//
//	work queue ─► handler ─► rejected ─► {queue}.retry ─ expires after Delay ─► work queue
//
// Every retry waits for Delay. DeadLettering ignores the delays of Policy and handlers.
//
// A queue without a dead-letter exchange drops rejected messages. If the work queue exists with different arguments, the
// worker therefore does not use it, and reports an error. The work queue has practically no delivery limit, because
// RabbitMQ would also dead-letter a message over the limit into the wait queue. When the message returns, RabbitMQ would
// drop it, because the cycle does not contain a rejection (https://www.rabbitmq.com/docs/dlx#routing).
//
// In an existing system, Infrastructure describes the objects of the system. A rejected message keeps its routing key on
// the whole path, unless a queue has an x-dead-letter-routing-key. A message that was published directly to its queue
// (through the default exchange) has the queue name as its routing key, so RetryExchange in the following example would
// drop it. Reprise cannot change the routing key, because it does not publish a copy. If you expect such messages, bind
// the queues with that key, too, or use MessageTTL.
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
	// Delay is the x-message-ttl of the wait queue, in whole milliseconds. Default: 1 min. With an
	// Infrastructure, Delay is only logged.
	Delay time.Duration

	FailedAddress Address // default: the queue {queue}.failed

	// WorkExchange is the exchange to which the wait queue dead-letters expired messages. It determines {key} in the
	// FailedAddress.
	WorkExchange string

	// Infrastructure declares all objects. If it is empty, the worker declares the work queue, the
	// queue {queue}.retry and the failed queue.
	Infrastructure Topology
}

func (r DeadLettering) withDefaults() DeadLettering {
	r.Delay = cmp.Or(r.Delay, DefaultDeadLetteringDelay)
	r.FailedAddress = r.FailedAddress.orQueue("{queue}.failed")
	return r
}

// Validate reports an invalid delay, an invalid address and a contradictory Infrastructure.
func (r DeadLettering) Validate() error {
	r = r.withDefaults()
	err := validateDelay("DeadLettering.Delay", r.Delay, time.Millisecond, "1ms", DefaultDeadLetteringDelay)
	if r.Infrastructure.empty() {
		return errors.Join(err, r.FailedAddress.validate("DeadLettering.FailedAddress"))
	}
	return errors.Join(err, validateLength("DeadLettering.FailedAddress.Key", r.FailedAddress.Key),
		validateLength("DeadLettering.FailedAddress.Exchange", r.FailedAddress.Exchange), r.Infrastructure.Validate())
}

// ValidateQueue reports a work queue that would drop rejected messages, a work queue that WorkExchange
// does not reach, and a work queue whose derived queues would have invalid names.
func (r DeadLettering) ValidateQueue(queue string) error {
	r = r.withDefaults()
	for _, q := range r.Infrastructure.Queues {
		if q.Name != queue {
			continue
		}
		exchange, found := q.Args["x-dead-letter-exchange"].(string)
		if !found {
			return fmt.Errorf("topology: DeadLettering.Infrastructure: work queue %q must have x-dead-letter-exchange (the exchange of the wait queue; otherwise the broker drops rejected messages)", queue)
		}
		if err := r.Infrastructure.validateDeadLetters(exchange); err != nil {
			return err
		}
	}
	if r.Infrastructure.empty() && r.FailedAddress.queue(queue) == retryQueue(queue) {
		return fmt.Errorf("topology: DeadLettering.FailedAddress must not be the wait queue %q, which returns parked messages (use another queue, such as %q)", retryQueue(queue), "{queue}.failed")
	}
	return errors.Join(
		r.FailedAddress.validateOtherQueue("DeadLettering.FailedAddress", queue, r.WorkExchange),
		r.Infrastructure.validateReturnPath("DeadLettering", r.WorkExchange, queue),
		validateNames(queue, retryQueue(queue), r.FailedAddress.queue(queue)))
}

// Marks returns Deaths.
func (DeadLettering) Marks() Marks { return Deaths{} }

// Topology returns the Infrastructure. If the Infrastructure is empty, it returns the work queue, its wait queue and its
// failed queue.
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

// Wait returns the hop into the wait queue, with r.Delay. It returns an error for a message with an x-death header
// that the broker cannot have written, because the worker must not reject such a message.
func (r DeadLettering) Wait(d Delivery, _ time.Duration) (Hop, error) {
	if err := checkRejectable(d); err != nil {
		return Hop{}, err
	}
	return Hop{Way: DeadLetter, Delay: r.withDefaults().Delay}, nil
}

// Failed returns the hop into the failed queue.
func (r DeadLettering) Failed(d Delivery) Hop {
	r = r.withDefaults()
	return r.Infrastructure.hop(r.FailedAddress, d, r.WorkExchange, failedQueue(r.FailedAddress.queue(d.Queue)))
}

// retryQueue returns the name of the wait queue of a work queue.
func retryQueue(queue string) string { return queue + ".retry" }
