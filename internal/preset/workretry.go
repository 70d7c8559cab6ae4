package preset

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// Names of the work/retry design on the wire. The failed queue is an addition, because the published design retries
// indefinitely.
const (
	WorkRetryWorkExchange  = "WorkExchange"
	WorkRetryRetryExchange = "RetryExchange"

	WorkRetryWorkQueue   = "WorkQueue"
	WorkRetryRetryQueue  = "RetryQueue"
	WorkRetryFailedQueue = "WorkQueue.failed"
)

// WorkRetryRetryDelay is the delay of a retry in the design: 300000 ms.
const WorkRetryRetryDelay = 5 * time.Minute

// WorkRetry is a design with a work queue and a wait queue that dead-letter to each other. The consumer rejects a failed
// message (basic.reject with requeue=false), and the broker returns it after a delay.
//
//	WorkExchange ─────────► WorkQueue ─► handler ─► nil ──────────────► acknowledged
//	     ▲                      │           └─────► error, none left ─► copy to WorkQueue.failed
//	     │                      └ rejected ─► RetryExchange
//	     └─ expires, 5 min ─ RetryQueue ◄────────┘
//
// The design does not define a header. The broker counts the rejections of a message in WorkQueue, by all programs, in the
// header x-death. Some programs of this design publish copies to RetryExchange themselves. The count of such a copy starts
// at zero.
//
// The design retries indefinitely. With Reprise, the Policy of the worker limits the attempts. If the retries are exhausted,
// the worker publishes a copy to WorkQueue.failed, which is unknown to other programs. Every retry waits for RetryDelay. The
// worker ignores the delays of Policy and handlers.
//
// A message keeps its routing key on the whole path. If the exchanges route by the key, both queues are also bound with
// the name of WorkQueue as the key. Without this binding, RetryExchange would silently drop a rejected message that was
// published directly to WorkQueue (through the default exchange).
type WorkRetry struct {
	RetryDelay time.Duration // x-message-ttl of RetryQueue, whole milliseconds; default 5 min

	// Kind is the kind of both exchanges: topology.Direct, Fanout or Topic. It must match the kind of the deployed
	// exchanges. Default: topology.Direct, as published.
	Kind string

	// Key is the routing key of the bindings of both queues. Other bindings may exist, but each key
	// that leads to WorkQueue must also lead to RetryQueue. Default: "", as published.
	Key string

	// TransientExchanges declares both exchanges as transient, which is the default of pika and of the Java and .NET
	// clients. A restart of the broker deletes transient exchanges. Until a program declares them again, rejected
	// and expired messages are lost. Prefer durable exchanges. Default: durable.
	TransientExchanges bool

	// QueueType is the x-queue-type of WorkQueue and RetryQueue; "" omits the argument, as published. With "quorum" the
	// queues also get arguments that prevent losses if a node fails: x-dead-letter-strategy at-least-once and x-overflow
	// reject-publish. They also get an x-delivery-limit of 2147483647. If a message exceeded a lower limit, RabbitMQ
	// would dead-letter the message without a rejection, and drop it as a cycle when it returns from RetryQueue.
	// https://www.rabbitmq.com/docs/dlx#routing
	QueueType string

	// Prefix is the prefix of all names, so that several instances of the design can share a virtual host. Default: "".
	Prefix string
}

func (w WorkRetry) withDefaults() WorkRetry {
	w.RetryDelay = cmp.Or(w.RetryDelay, WorkRetryRetryDelay)
	w.Kind = cmp.Or(w.Kind, topology.Direct)
	return w
}

// Validate reports settings that the design does not support, and explains how to fix them.
func (w WorkRetry) Validate() error {
	errs := []error{
		validateDelay("WorkRetry.RetryDelay", w.RetryDelay, WorkRetryRetryDelay),
		validateKind("WorkRetry.Kind", w.Kind),
		validateQueueType("WorkRetry.QueueType", w.QueueType, "the default of the broker"),
	}
	if len(w.Key) > maxName {
		errs = append(errs, fmt.Errorf("preset: WorkRetry.Key must have at most %d bytes: got %d", maxName, len(w.Key)))
	}
	if most := maxName - len(WorkRetryFailedQueue); len(w.Prefix) > most {
		errs = append(errs, fmt.Errorf("preset: WorkRetry.Prefix must have at most %d bytes: got %d (the name of %s begins with it)", most, len(w.Prefix), WorkRetryFailedQueue))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := w.Topology().Validate(); err != nil {
		return fmt.Errorf("preset: WorkRetry: %w", err)
	}
	return nil
}

func (w WorkRetry) validateQueue(queue string) error {
	return validateWorkQueue("WorkRetry", queue, w.Queue())
}

// Queue returns the name of the work queue, for WorkerConfig.Queue.
func (w WorkRetry) Queue() string { return w.Prefix + WorkRetryWorkQueue }

// Topology returns all exchanges, queues and bindings of the design, and the failed queue.
func (w WorkRetry) Topology() topology.Topology {
	w = w.withDefaults()
	var (
		workExchange  = w.Prefix + WorkRetryWorkExchange
		retryExchange = w.Prefix + WorkRetryRetryExchange
		retryQueue    = w.Prefix + WorkRetryRetryQueue
	)
	t := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: workExchange, Kind: w.Kind, Transient: w.TransientExchanges},
			{Name: retryExchange, Kind: w.Kind, Transient: w.TransientExchanges},
		},
		Queues: []topology.Queue{
			{Name: w.Queue(), Args: w.typed(topology.Table{"x-dead-letter-exchange": retryExchange})},
			{Name: retryQueue, Args: w.typed(topology.Table{
				"x-dead-letter-exchange": workExchange,
				"x-message-ttl":          w.RetryDelay.Milliseconds(),
			})},
			failedQueue(w.Prefix + WorkRetryFailedQueue),
		},
	}
	for _, key := range w.keys() {
		t.Bindings = append(t.Bindings,
			topology.Binding{Exchange: workExchange, Queue: w.Queue(), RoutingKey: key},
			topology.Binding{Exchange: retryExchange, Queue: retryQueue, RoutingKey: key})
	}
	return t
}

// keys returns the routing keys that lead to both queues.
func (w WorkRetry) keys() []string {
	if w.Kind == topology.Fanout || w.Key == w.Queue() {
		return []string{w.Key}
	}
	return []string{w.Key, w.Queue()}
}

func (w WorkRetry) typed(args topology.Table) topology.Table {
	if w.QueueType != "" {
		args["x-queue-type"] = w.QueueType
	}
	if w.QueueType == "quorum" {
		args["x-dead-letter-strategy"] = "at-least-once"
		args["x-overflow"] = "reject-publish" // required for at-least-once
		args["x-delivery-limit"] = unlimited
	}
	return args
}

// Strategy returns the retry strategy of the design, for a worker on the queue that Queue returns.
func (w WorkRetry) Strategy() topology.Strategy {
	given := w
	w = w.withDefaults()
	return topology.Strategy{
		Route: designRoute{topology.DeadLettering{
			Delay:          w.RetryDelay,
			WorkExchange:   w.Prefix + WorkRetryWorkExchange,
			FailedAddress:  topology.Address{Key: w.Prefix + WorkRetryFailedQueue},
			Infrastructure: w.Topology(),
		}, given},
		Marks: topology.Deaths{},
	}
}
