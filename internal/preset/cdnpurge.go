package preset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// Default names of CDNPurge. The design does not specify names. CDNPurgePublished uses the names of the published code.
const (
	CDNPurgeExchange     = "cdn-purge"
	CDNPurgeQueue        = "cdn-purge"
	CDNPurgeWaitExchange = "cdn-purge.wait"
	CDNPurgeWaitQueue    = "cdn-purge.wait"
)

// Default backoff of CDNPurge.
const (
	CDNPurgeFirst  = 10 * time.Second
	CDNPurgeFactor = 3.0
)

// cdnPurgeKeys contains the default routing keys: the kinds of purged objects.
var cdnPurgeKeys = []string{"url", "directory", "tag"}

// CDNPurge is the queue design of a CDN purge service. The backoff is exponential, and the broker records the last delay on
// the message.
//
//	            url, directory, tag
//	cdn-purge (direct) ──────────────► cdn-purge (queue) ─► handler ─► nil: ack
//	      ▲                                                   │
//	      │                                                   │ error: a copy with the same key, expiration
//	      │                                                   ▼ 10000, then 3 × x-death[0].original-expiration
//	      └─ expires ─ cdn-purge.wait (queue) ◄────────── cdn-purge.wait (direct)
//	                                             url, directory, tag
//
// Both queues are bound to their exchanges with the same routing keys. The wait queue dead-letters to the main exchange
// and does not change the routing key, so expired messages return with their original key.
//
// By default, the first expiration is 10000 ms, and each further expiration is three times the previous expiration, plus
// or minus up to 10%, and at most Max. The broker records the previous expiration in the header x-death. Therefore
// workers and programs in other languages can use the same queues, and each continues the backoff of the others. See
// topology.GrowingTTL. topology.Expirations describes the other headers that a worker reads, and the differences between
// RabbitMQ 3.10 and 4.
//
// The design retries indefinitely. With Reprise, the Policy of the worker limits the attempts, by default to 19. The last
// attempt starts about five days after the first. If the retries are exhausted, the worker parks the message in
// FailedQueue, which other programs do not need.
//
// As in any wait queue with different expirations, a message also waits for earlier messages that are due later. Max limits
// this wait.
type CDNPurge struct {
	Exchange string // main exchange; default cdn-purge
	Queue    string // work queue; default cdn-purge

	WaitExchange string // default: {Exchange}.wait
	WaitQueue    string // default: {Queue}.wait

	FailedQueue string // default: {Queue}.failed

	// RoutingKeys are the keys of the bindings of both queues. List all keys with which programs publish messages. If
	// another program publishes a copy to the wait exchange with a key that no binding matches, the copy is lost. Workers
	// do not lose such messages: see Strategy. Default: url, directory, tag.
	RoutingKeys []string

	Kind     string // kind of the main exchange; default direct
	WaitKind string // kind of the wait exchange; default: Kind

	// TransientExchanges declares both exchanges as transient, which is the default of pika and of the Java and .NET
	// clients. A restart of the broker deletes transient exchanges. Until a program declares them again, expired
	// messages are lost. Prefer durable exchanges. Default: durable.
	TransientExchanges bool

	// TransientQueues declares the wait queue as transient, and also the work queue if it does not
	// exist. A restart of the broker deletes transient queues with their messages. RabbitMQ 4.3
	// refuses such queues unless its configuration has
	// deprecated_features.permit.transient_nonexcl_queues = true. Default: durable.
	TransientQueues bool

	// AutoDelete declares both exchanges and both queues as auto-delete, which is the default of py-amqp and similar
	// clients. When the last consumer of the work queue is canceled, the broker deletes the queue with its messages, and
	// then the main exchange. Until the main exchange exists again, messages that expire in the wait queue are lost. A
	// worker has no consumer after it has stopped or lost its connection, and while it is paused, for example by a Breaker.
	// Set AutoDelete only if other programs have declared the objects as auto-delete. Default: not auto-delete.
	AutoDelete bool

	First  time.Duration // first expiration in whole milliseconds; default 10 s.
	Factor float64       // ratio of an expiration to the previous expiration; default 3.
	Jitter float64       // maximum random deviation, as a fraction of the expiration; default 0.1, negative for none.
	Max    time.Duration // longest expiration in whole milliseconds; default 12 h, or First if that is longer.

	// QueueType is the x-queue-type of the wait queue, and of the work queue if it does not exist; "" omits the argument.
	// With "quorum", the work queue also gets an x-delivery-limit of 2147483647. The work queue has no dead-letter
	// exchange, so RabbitMQ would drop a message that exceeded a lower limit.
	QueueType string

	// WaitArgs contains further arguments of the wait queue. Set WaitArgs if another program declared the queue with
	// arguments other than x-dead-letter-exchange and x-queue-type.
	WaitArgs topology.Table

	// WorkersOnly states that no program except Reprise workers consumes the work queue, and permits to schedule messages
	// to Exchange and Queue. The published code computes its next delay from the newest entry of x-death, which has no
	// expiration in a scheduled message: the result is not a number, and the broker closes the channel of the program.
	// Default: Client.PublishAt refuses to schedule to Exchange and Queue, if the client knows the design from Topology or
	// a worker.
	WorkersOnly bool

	// Rand returns a number in [0, 1) for the jitter. It must be safe for concurrent use. Default:
	// math/rand/v2.Float64.
	Rand func() float64
}

// CDNPurgePublished returns the design with the names in its published code: primary-exchange, primary-queue, wait-exchange
// and wait-queue, with the routing keys routing-key-a and routing-key-b. If the program that declared these objects used the
// defaults of its client, also set TransientExchanges, TransientQueues and AutoDelete to those defaults.
func CDNPurgePublished() CDNPurge {
	return CDNPurge{
		Exchange: "primary-exchange", Queue: "primary-queue",
		WaitExchange: "wait-exchange", WaitQueue: "wait-queue",
		RoutingKeys: []string{"routing-key-a", "routing-key-b"},
	}
}

func (w CDNPurge) withDefaults() CDNPurge {
	w.Exchange = cmp.Or(w.Exchange, CDNPurgeExchange)
	w.Queue = cmp.Or(w.Queue, CDNPurgeQueue)
	w.WaitExchange = cmp.Or(w.WaitExchange, w.Exchange+".wait")
	w.WaitQueue = cmp.Or(w.WaitQueue, w.Queue+".wait")
	w.FailedQueue = cmp.Or(w.FailedQueue, topology.FailedQueue(w.Queue))
	if len(w.RoutingKeys) == 0 {
		w.RoutingKeys = slices.Clone(cdnPurgeKeys)
	}
	w.Kind = cmp.Or(w.Kind, topology.Direct)
	w.WaitKind = cmp.Or(w.WaitKind, w.Kind)
	w.First = cmp.Or(w.First, CDNPurgeFirst)
	w.Factor = cmp.Or(w.Factor, CDNPurgeFactor)
	return w
}

// Validate reports settings that the design does not support, and explains how to fix them.
func (w CDNPurge) Validate() error {
	errs := []error{
		validateKind("CDNPurge.Kind", w.Kind),
		validateKind("CDNPurge.WaitKind", w.WaitKind),
		validateQueueType("CDNPurge.QueueType", w.QueueType, "the default of the broker"),
	}
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("preset: CDNPurge."+format, args...))
	}
	d := w.withDefaults()
	names := map[string]string{}
	for _, q := range [][2]string{{"Queue", d.Queue}, {"WaitQueue", d.WaitQueue}, {"FailedQueue", d.FailedQueue}} {
		if other, taken := names[q[1]]; taken {
			fault("%s and %s must be different: got %q twice", other, q[0], q[1])
		}
		names[q[1]] = q[0]
	}
	if d.WaitExchange == d.Exchange {
		fault("Exchange and WaitExchange must be different: got %q twice (waiting messages would be delivered immediately)", d.Exchange)
	}
	if dlx, found := w.WaitArgs["x-dead-letter-exchange"]; found && dlx != d.Exchange {
		fault("WaitArgs: x-dead-letter-exchange must be the main exchange %q: got %v (omit it)", d.Exchange, dlx)
	}
	if key, found := w.WaitArgs["x-dead-letter-routing-key"]; found {
		fault("WaitArgs must not have x-dead-letter-routing-key: got %v (messages would lose their routing keys)", key)
	}
	if t, found := w.WaitArgs["x-queue-type"]; found && t != "classic" && t != "quorum" {
		fault("WaitArgs: x-queue-type must be \"classic\" or \"quorum\": got %v", t)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := errors.Join(d.Topology().Merge(d.otherKeys().Infrastructure).Validate(), w.route().Validate()); err != nil {
		return fmt.Errorf("preset: CDNPurge: %w", err)
	}
	return nil
}

func (w CDNPurge) validateQueue(queue string) error {
	if own := w.withDefaults().Queue; queue != own {
		return fmt.Errorf("preset: CDNPurge.Queue must be the queue of the worker %q: got %q", queue, own)
	}
	return nil
}

// Topology returns all exchanges, queues and bindings of the design, and the failed queue. An existing work queue remains
// unchanged, whatever its arguments.
func (w CDNPurge) Topology() topology.Topology {
	w = w.withDefaults()
	work, wait := topology.Table{}, topology.Table{"x-dead-letter-exchange": w.Exchange}
	if w.QueueType != "" {
		work["x-queue-type"], wait["x-queue-type"] = w.QueueType, w.QueueType
	}
	if w.QueueType == "quorum" {
		work["x-delivery-limit"] = unlimited
	}
	maps.Copy(wait, w.WaitArgs)
	t := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: w.Exchange, Kind: w.Kind, Transient: w.TransientExchanges, AutoDelete: w.AutoDelete},
			{Name: w.WaitExchange, Kind: w.WaitKind, Transient: w.TransientExchanges, AutoDelete: w.AutoDelete},
		},
		Queues: []topology.Queue{
			{Name: w.Queue, IfAbsent: true, Transient: w.TransientQueues, AutoDelete: w.AutoDelete, Args: work},
			{Name: w.WaitQueue, Transient: w.TransientQueues, AutoDelete: w.AutoDelete, Args: wait},
			failedQueue(w.FailedQueue),
		},
	}
	for _, key := range w.RoutingKeys {
		t.Bindings = append(t.Bindings,
			topology.Binding{Exchange: w.Exchange, Queue: w.Queue, RoutingKey: key},
			topology.Binding{Exchange: w.WaitExchange, Queue: w.WaitQueue, RoutingKey: key})
	}
	if !w.WorkersOnly {
		t.NoSchedule = []topology.Address{{Exchange: w.Exchange}, {Key: w.Queue}}
	}
	return t
}

// Strategy returns the retry strategy of the design, for a worker on the work queue. The headers of the message determine
// the delay, so the worker ignores the delays of Policy and handlers, but not Policy.MaxAttempts.
//
// In this design, the routing key specifies the task of a message, so a message must return with the original key. A
// message from another exchange (such as the default exchange) can have a key that no binding matches. Such a message would
// not return through the main exchange. Instead, it waits equally long in the queue {WaitQueue}.aside and then returns to
// the work queue. For the first such message, the worker declares the queue {WaitQueue}.aside, a fanout exchange
// {WaitQueue}.aside that leads to this queue, and a fanout exchange {Queue}.aside that leads to the work queue.
func (w CDNPurge) Strategy() topology.Strategy {
	r := w.route()
	return topology.Strategy{Route: designRoute{cdnPurgeRoute{r, w.otherKeys()}, w}, Marks: r.Marks()}
}

// route returns the route of messages whose routing key leads into the wait queue and back.
func (w CDNPurge) route() topology.GrowingTTL {
	w = w.withDefaults()
	return topology.GrowingTTL{
		MessageTTL: topology.MessageTTL{
			WaitAddress:    topology.Address{Exchange: w.WaitExchange, Key: "{key}"},
			FailedAddress:  topology.Address{Key: w.FailedQueue},
			WorkExchange:   w.Exchange,
			Infrastructure: w.Topology(),
		},
		WaitQueue: w.WaitQueue,
		First:     w.First,
		Factor:    w.Factor,
		Max:       w.Max,
		Jitter:    w.Jitter,
		Rand:      w.Rand,
	}
}
