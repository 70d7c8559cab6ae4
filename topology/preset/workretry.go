package preset

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// Names of the work/retry design on the wire. The failed queue is an addition:
// the design as it was published retries for ever.
const (
	WorkRetryWorkExchange  = "WorkExchange"
	WorkRetryRetryExchange = "RetryExchange"

	WorkRetryWorkQueue   = "WorkQueue"
	WorkRetryRetryQueue  = "RetryQueue"
	WorkRetryFailedQueue = "WorkQueue.failed"
)

// WorkRetryRetryDelay is how long the design waits before a retry: 300000 ms.
const WorkRetryRetryDelay = 5 * time.Minute

// WorkRetry is the design of two exchanges that dead-letter to each other. The
// consumer rejects what failed (basic.reject with requeue=false), and the broker
// does the rest.
//
//	WorkExchange ─────────► WorkQueue ─► handler ─► nil ──────────────► acknowledged
//	     ▲                      │           └─────► error, none left ─► copy to WorkQueue.failed
//	     │                      └ rejected ─► RetryExchange
//	     └─ expires, 5 min ─ RetryQueue ◄────────┘
//
// There is no header of its own: how often WorkQueue has rejected a message, the
// broker counts in x-death. A rejection by any program counts, whatever it is
// written in. What no program counts are copies that a client publishes to
// RetryExchange by itself, as some programs of this design do: each of them
// starts from the beginning.
//
// The design has no end. Here the worker's Policy says how many attempts there
// are; after them, a copy goes to WorkQueue.failed, which no other program knows
// of. The delays of a Policy are not used: every retry waits RetryDelay.
//
// A message keeps its routing key on the whole way. Where the exchanges go by
// the key, both queues are also bound by WorkQueue's name: a message that was put
// into it by name (through the default exchange) would
// otherwise be dropped by RetryExchange without a word, when it is rejected.
type WorkRetry struct {
	RetryDelay time.Duration // x-message-ttl of RetryQueue, whole milliseconds; default 5 min

	// Kind is that of both exchanges: topology.Direct, Fanout or Topic. It has to
	// be what they are deployed with. Default topology.Direct, as published.
	Kind string

	// Key is what both queues are bound with. Other bindings, by whomever, stay
	// and do no harm; each key that leads to WorkQueue must lead to RetryQueue,
	// too. Default "", as published.
	Key string

	// TransientExchanges declares both exchanges as transient, as clients do
	// that do not ask for durable ones (pika, Java, .NET). After a restart of the
	// broker they are gone, and what is rejected then is lost until a program
	// declares them again: prefer durable ones. Default: durable.
	TransientExchanges bool

	// QueueType is the x-queue-type of WorkQueue and RetryQueue; "" leaves the
	// argument out, as published. With "quorum" they get what makes them lose
	// nothing when a node fails: x-dead-letter-strategy at-least-once, x-overflow
	// reject-publish; and an x-delivery-limit of 2147483647, since what RabbitMQ
	// gives up on by itself, rather than having it rejected, it takes for a cycle
	// on the way back from RetryQueue, and drops.
	// https://www.rabbitmq.com/docs/dlx#routing
	QueueType string

	// Prefix is put before all names, for several such pairs on one virtual
	// host. Default "".
	Prefix string
}

func (w WorkRetry) withDefaults() WorkRetry {
	w.RetryDelay = cmp.Or(w.RetryDelay, WorkRetryRetryDelay)
	w.Kind = cmp.Or(w.Kind, topology.Direct)
	return w
}

// Validate reports settings that the design cannot express and what to write
// instead.
func (w WorkRetry) Validate() error {
	errs := []error{
		validateDelay("WorkRetry.RetryDelay", w.RetryDelay, WorkRetryRetryDelay),
		validateKind("WorkRetry.Kind", w.Kind),
		validateQueueType("WorkRetry.QueueType", w.QueueType, "for what the broker makes it"),
	}
	if len(w.Key) > maxName {
		errs = append(errs, fmt.Errorf("preset: WorkRetry.Key has %d bytes: use at most %d", len(w.Key), maxName))
	}
	if most := maxName - len(WorkRetryFailedQueue); len(w.Prefix) > most {
		errs = append(errs, fmt.Errorf("preset: WorkRetry.Prefix has %d bytes: use at most %d, since %s goes with it", len(w.Prefix), most, WorkRetryFailedQueue))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := w.Topology().Validate(); err != nil {
		return fmt.Errorf("preset: WorkRetry: %w", err)
	}
	return nil
}

func (w WorkRetry) validateQueue(queue string) error { return oneOf("WorkRetry", queue, w.Queue()) }

// Queue returns the name of the work queue, for WorkerConfig.Queue.
func (w WorkRetry) Queue() string { return w.Prefix + WorkRetryWorkQueue }

// Topology returns all exchanges, queues and bindings of the design, and the
// failed queue.
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

// keys are those that lead to either queue.
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
		args["x-overflow"] = "reject-publish" // without which it would not be at least once
		args["x-delivery-limit"] = unlimited
	}
	return args
}

// Strategy returns how messages of the design are retried and parked, for a
// worker on its work queue.
func (w WorkRetry) Strategy() topology.Strategy {
	given := w
	w = w.withDefaults()
	return topology.Strategy{
		Route: designed{topology.DeadLettering{
			Delay:          w.RetryDelay,
			WorkExchange:   w.Prefix + WorkRetryWorkExchange,
			FailedAddress:  topology.Address{Key: w.Prefix + WorkRetryFailedQueue},
			Infrastructure: w.Topology(),
		}, given},
		Marks: topology.Deaths{},
	}
}
