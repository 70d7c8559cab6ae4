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

// Names of the wait exchange design, which leaves them open: these are the defaults of
// the fields of CDNPurge. CDNPurgePublished has those of its published code.
const (
	CDNPurgeExchange     = "cdn-purge"
	CDNPurgeQueue        = "cdn-purge"
	CDNPurgeWaitExchange = "cdn-purge.wait"
	CDNPurgeWaitQueue    = "cdn-purge.wait"
)

// Numbers of the wait exchange design.
const (
	CDNPurgeFirst  = 10 * time.Second
	CDNPurgeFactor = 3.0
)

// cdnPurgeKeys are the routing keys where none are given: what is purged.
var cdnPurgeKeys = []string{"url", "directory", "tag"}

// CDNPurge is the queue design of a CDN purge service: exponential back-off
// that is on the message itself.
//
//	            url, directory, tag
//	cdn-purge (direct) ──────────────► cdn-purge (queue) ─► handler ─► nil: ack
//	      ▲                                                   │
//	      │                                                   │ error: a copy under its own key, expiration
//	      │                                                   ▼ 10000, then 3 × x-death[0].original-expiration
//	      └─ expires ─ cdn-purge.wait (queue) ◄────────── cdn-purge.wait (direct)
//	                                             url, directory, tag
//
// Both exchanges are bound to their queues with the same routing keys, and the
// wait queue dead-letters to the main exchange without a key of its own: so what
// expires comes back under the key that it always had.
//
// The first expiration is 10000, each other one three times what the broker has
// noted of the one before, in the header x-death, a tenth more or less. So programs
// in other languages, on the same queues, go on where a worker left a message, and
// it where they did: see topology.GrowingTTL, and topology.Expirations, which says
// what else a worker reads, and how RabbitMQ 3.10 and 4 differ.
//
// The design retries for ever. Here a worker's Policy bounds the attempts, by
// default at 19, the last of them about five days after the first, and what has used
// them up is parked in {Queue}.failed, a queue that other programs need not know.
//
// As with any wait queue of mixed expirations, a message waits behind those that
// came into it earlier and are due later. Max bounds that.
type CDNPurge struct {
	Exchange string // the main exchange; default cdn-purge
	Queue    string // the work queue; default cdn-purge

	WaitExchange string // default: {Exchange}.wait
	WaitQueue    string // default: {Queue}.wait

	FailedQueue string // default: {Queue}.failed

	// RoutingKeys are those by which both queues are bound. All that is in use on
	// the main exchange should be here: other programs that put back a message with
	// another key lose it. Workers do not, see Strategy. Default url, directory, tag.
	RoutingKeys []string

	Kind     string // of the main exchange; default direct
	WaitKind string // of the wait exchange; default: Kind

	// TransientExchanges declares both exchanges as transient, as clients do
	// that do not ask for durable ones (pika, Java, .NET). After a restart of the
	// broker they are gone, and what expires then is lost until a program declares
	// them again: prefer durable ones. Default: durable.
	TransientExchanges bool

	// TransientQueues declares the wait queue, and the work queue where it does not exist,
	// as transient: after a restart of the broker they are gone, with their messages.
	// RabbitMQ 4.3 refuses such queues unless its configuration has
	// deprecated_features.permit.transient_nonexcl_queues = true. Default: durable.
	TransientQueues bool

	// AutoDelete declares both exchanges and both queues as auto-delete, as clients do by
	// default that are made like py-amqp. The broker deletes the work queue when its last
	// consumer leaves, with its messages, and then the main exchange; what expires in the
	// wait queue while there is none is lost. A worker leaves when it stops, when its
	// connection is lost, and while it pauses for a breaker or PauseFor. Set it only
	// where other programs have declared the design so. Default: kept.
	AutoDelete bool

	First  time.Duration // the first expiration, whole milliseconds; default 10 s
	Factor float64       // each expiration is so many times the one before; default 3
	Jitter float64       // the part of it by which it is more or less, at random; default 0.1, negative for none
	Max    time.Duration // the longest expiration, whole milliseconds; default 12 h

	// QueueType is the x-queue-type of the work queue, where it does not exist,
	// and of the wait queue; "" leaves the argument out. With "quorum" the work
	// queue also gets an x-delivery-limit of 2147483647, since there is nowhere
	// for RabbitMQ to put a message that exceeds one.
	QueueType string

	// WaitArgs are arguments that the wait queue has besides
	// x-dead-letter-exchange, where it was declared by somebody else with such.
	WaitArgs topology.Table

	// Rand returns a number in [0, 1) for the jitter, and must be safe for
	// concurrent use. Default: math/rand/v2.Float64.
	Rand func() float64
}

// CDNPurgePublished returns the design with the names of its published code:
// primary-exchange, primary-queue, wait-exchange and wait-queue, bound by routing-key-a
// and routing-key-b. Where the program that declared them left its client's defaults as
// they are, set TransientExchanges, TransientQueues and AutoDelete as well.
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

// Validate reports names and numbers the design cannot express and what to
// write instead.
func (w CDNPurge) Validate() error {
	errs := []error{
		validateKind("CDNPurge.Kind", w.Kind),
		validateKind("CDNPurge.WaitKind", w.WaitKind),
		validateQueueType("CDNPurge.QueueType", w.QueueType, "for what the broker makes it"),
	}
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("preset: CDNPurge."+format, args...))
	}
	d := w.withDefaults()
	names := map[string]string{}
	for _, q := range [][2]string{{"Queue", d.Queue}, {"WaitQueue", d.WaitQueue}, {"FailedQueue", d.FailedQueue}} {
		if other, taken := names[q[1]]; taken {
			fault("%s and %s are both %q: name two queues", other, q[0], q[1])
		}
		names[q[1]] = q[0]
	}
	if d.WaitExchange == d.Exchange {
		fault("Exchange and WaitExchange are both %q, so that what is to wait would be delivered at once: name two exchanges", d.Exchange)
	}
	if dlx, found := w.WaitArgs["x-dead-letter-exchange"]; found && dlx != d.Exchange {
		fault("WaitArgs has x-dead-letter-exchange %v: leave it out, it is the main exchange %q", dlx, d.Exchange)
	}
	if key, found := w.WaitArgs["x-dead-letter-routing-key"]; found {
		fault("WaitArgs has x-dead-letter-routing-key %v: leave it out, or every message would come back under that key", key)
	}
	if t, found := w.WaitArgs["x-queue-type"]; found && t != "classic" && t != "quorum" {
		fault("WaitArgs has x-queue-type %v: use \"classic\" or \"quorum\"", t)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := errors.Join(d.Topology().Merge(d.aside().Infrastructure).Validate(), w.route().Validate()); err != nil {
		return fmt.Errorf("preset: CDNPurge: %w", err)
	}
	return nil
}

func (w CDNPurge) validateQueue(queue string) error {
	if own := w.withDefaults().Queue; queue != own {
		return fmt.Errorf("preset: CDNPurge.Queue is %q, and the worker's is %q: give both the same name", own, queue)
	}
	return nil
}

// Topology returns all exchanges, queues and bindings of the design, and the
// failed queue. A work queue that exists is used as it is, whatever its
// arguments.
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
	return t
}

// Strategy returns how messages of the design are retried and parked, for a
// worker on the Queue. The delay is on the message: the Backoff of the worker's
// Policy is not consulted, its MaxAttempts are.
//
// The routing key says what is to be done with a message, and so it comes back under
// the one it had. What has come by a key that is not one of the RoutingKeys, from another
// exchange or by the queue's name, would not find back through the main exchange. It
// waits as long as others, in the queue {WaitQueue}.aside, and expires to the work queue
// alone. That queue is declared when there is such a message, with a fanout exchange of
// the same name in front of it, and another one, {Queue}.aside, behind it.
func (w CDNPurge) Strategy() topology.Strategy {
	r := w.route()
	return topology.Strategy{Route: designed{cdnPurgeRoute{r, w.aside()}, w}, Marks: r.Marks()}
}

// route is the way of messages whose key leads into the wait queue and back.
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
