package reprise

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/topology"
)

// Defaults of WorkerConfig.
const (
	DefaultConcurrency  = 1
	DefaultDrainTimeout = 30 * time.Second

	DefaultConsumerTimeout = 30 * time.Minute
)

// WorkerConfig describes a Worker. Queue and Handler are required.
type WorkerConfig struct {
	// Queue is the name of the work queue. Required. It must not be a stream, which
	// AMQP does not tell from a queue: nothing ever leaves one, so that each retry
	// would be one message more, and an acknowledged one would be there as before.
	Queue string

	// Handler does the work. Required.
	Handler Handler

	// Policy says how often, for how long and after which delays a failed message is
	// tried again. Default: 19 attempts over about 24 hours, see Policy.
	Policy Policy

	// Middleware is put around Handler, the first one outermost. Where their order
	// matters is said of type Middleware.
	Middleware []Middleware

	// AsDelivered shows the handler each message as the broker has it: with the
	// exchange and the routing key of this delivery, and with all headers, those of
	// Reprise and of the broker (x-death and its kin) among them, and those that keep
	// what a copy must not carry in its proper place. Attempt is 1, and Errors is
	// empty. It does not change how failed messages are settled. It is for programs
	// that move or keep messages. Default false: each message as it was first
	// published.
	AsDelivered bool

	// Acked is called once for each message whose handler returned nil. A nil error
	// means that the broker is known to have the acknowledgement: it will not deliver
	// the message again, even if the connection ends. An error means that the
	// connection is gone and this is not known: the message may be delivered again. m
	// is the message that the outermost Middleware was given, or the handler where
	// there is no middleware. It is for programs that have to tell a message that is
	// delivered again from another one that is equal to it. AMQP has no answer to an
	// ack, so the worker makes a request after it, one for all acks that are sent
	// together. On RabbitMQ's quorum queues that is certain for at most 32 acks at a time:
	// Prefetch and Concurrency are at most 32 with Acked. See docs/guarantees.md. Acked is called from many goroutines at once, and a drain
	// waits for it. Default: none.
	Acked func(m *Message, err error)

	// Strategy is how failed messages come back. Default: any delay through
	// the queue's own wait queues, {Queue}.wait.…, parked in {Queue}.failed, see
	// package topology.
	Strategy topology.Strategy

	// Order says which comes first where a copy takes a failed message's place:
	// publishing the copy, or acknowledging the original. Default PublishThenAck,
	// which never loses.
	Order Order

	// Topology is declared together with what the Strategy needs, and before
	// consuming: typically the exchange and bindings that feed the queue. A
	// Queue or an Exchange declared here, however it is, replaces the Strategy's
	// own declaration of it, be it the work queue, {Queue}.failed, a wait
	// queue, or an exchange of a preset. That it keeps messages is then up to you.
	Topology topology.Topology

	// Concurrency is how many handlers run at once. Default 1: messages are
	// handled in the order of the queue, as long as none fails.
	Concurrency int

	// Prefetch is how many unsettled messages the broker lets this worker have,
	// including those whose retry copy awaits its confirm. A message that is handled alone (see CrashLimit)
	// comes on top, if its copy is not confirmed within a twentieth of ConsumerTimeout: then the worker
	// fetches others again. At least Concurrency, at most 65535. Default 4×Concurrency, but at least 16; with
	// Debounce at least 256. With AckThenPublish or Acked it is at most 32.
	Prefetch int

	// Priority is that of this worker among the consumers of the queue: those with a
	// higher one are given messages first, and the others when these have as many as
	// their prefetch allows. It may be negative. Default 0: none is sent, which is
	// that of all other consumers. It must be 0 on a queue with x-single-active-consumer:
	// if an active consumer of a quorum queue ends with unsettled messages while one of a
	// higher priority waits, RabbitMQ 4.3 keeps it, activates it when the other one ends,
	// and delivers nothing from then on. Validate refuses that for a queue that Topology
	// declares; AMQP does not tell the arguments of a queue that exists.
	// https://www.rabbitmq.com/docs/consumer-priority
	Priority int32

	// Limiter bounds how often an attempt begins. Default: no limit.
	Limiter Limiter

	// Breaker stops the worker from consuming while what the handler calls is
	// down. Default: none.
	Breaker Breaker

	// Debounce handles one of many equal messages that arrive in a burst.
	// Default: each message is handled.
	Debounce *Debounce

	// CrashLimit is how many times a message may be delivered without ever being
	// settled, its worker's process or connection having ended each time, before
	// it is parked unseen. From the second time on it is handled alone, so
	// that it takes no others along. Default 5 on quorum queues of RabbitMQ
	// 4.3 and later; on those before, which also count what is merely given
	// back, the broker's own limit on the queue (20). Negative: no limit.
	//
	// A classic queue does not count deliveries, and neither does the embedded broker
	// those that its own process ended with: CrashLimit has no effect there.
	CrashLimit int

	// ConsumerTimeout is the broker's consumer_timeout, after which it closes the
	// channel of a consumer that has not settled a message. The worker warns when a
	// handler has had a message for four fifths of it (EventTimeoutNear), and gives messages back that
	// have waited so long to begin, or whose copy could not be published in that time. At least 1 min. Default 30 min, which is
	// RabbitMQ's. Negative: the broker has none.
	// https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
	ConsumerTimeout time.Duration

	// DrainTimeout is how long a shutdown waits for running handlers before it
	// ends their context, at most: the end of the context given to Shutdown ends it
	// sooner. Default 30 s.
	DrainTimeout time.Duration
}

// certain reports whether acknowledgements have to be known to be taken.
func (c WorkerConfig) certain() bool { return c.Acked != nil || c.Order == AckThenPublish }

func (c WorkerConfig) maxPrefetch() int {
	if c.certain() {
		return ack.CertainWindow
	}
	return math.MaxUint16
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	c.Policy = c.Policy.WithDefaults()
	c.Strategy = c.Strategy.WithDefaults()
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.Prefetch == 0 {
		c.Prefetch = max(16, 4*c.Concurrency)
		if c.Debounce != nil {
			c.Prefetch = max(c.Prefetch, 256)
		}
		c.Prefetch = max(c.Concurrency, min(c.Prefetch, c.maxPrefetch()))
	}
	if c.ConsumerTimeout == 0 {
		c.ConsumerTimeout = DefaultConsumerTimeout
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	return c
}

// Validate reports what is missing or contradictory and what to write instead.
func (c WorkerConfig) Validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("reprise: WorkerConfig."+format, args...))
	}
	if c.Queue == "" {
		fault("Queue is empty: name the queue to consume")
	}
	if f, isFunc := c.Handler.(HandlerFunc); c.Handler == nil || isFunc && f == nil {
		fault("Handler is nil: give a function as reprise.HandlerFunc(f)")
	}
	d := c.withDefaults()
	if c.Concurrency < 0 || d.Concurrency > math.MaxUint16 {
		fault("Concurrency %d: use 1 to %d, or 0 for %d", c.Concurrency, math.MaxUint16, DefaultConcurrency)
	}
	if c.Prefetch < 0 || d.Prefetch > math.MaxUint16 || d.Prefetch < d.Concurrency {
		fault("Prefetch %d: use at least Concurrency (%d) and at most %d, or 0 for the default", c.Prefetch, d.Concurrency, math.MaxUint16)
	} else if d.Prefetch > c.maxPrefetch() {
		fault("Prefetch and Concurrency must be at most %d with AckThenPublish or Acked: got %d and %d (run several workers)", c.maxPrefetch(), d.Prefetch, d.Concurrency)
	}
	if c.DrainTimeout < 0 {
		fault("DrainTimeout %s is negative: use 0 for %s", c.DrainTimeout, DefaultDrainTimeout)
	}
	if c.Order != PublishThenAck && c.Order != AckThenPublish {
		fault("Order %d: use PublishThenAck or AckThenPublish", c.Order)
	}
	if c.ConsumerTimeout > 0 && c.ConsumerTimeout < time.Minute {
		fault("ConsumerTimeout %s: use what the broker has, at least 1m, 0 for %s, or a negative number for none", c.ConsumerTimeout, DefaultConsumerTimeout)
	}
	if slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m == nil }) {
		fault("Middleware has a nil entry: leave it out")
	}
	if c.Debounce != nil {
		errs = append(errs, c.Debounce.validate(d.overdue().after))
	}
	switch d.Strategy.Marks.(type) {
	case topology.Deliveries, topology.CountDown:
		if c.Policy.limitsTime() {
			fault("Policy.GiveUpAfter cannot be kept with this Strategy: nothing on a message says when it first failed; limit MaxAttempts, or use another Strategy")
		}
	}
	if m, ok := d.Strategy.Marks.(topology.Deliveries); ok && m.Classic && c.CrashLimit > 0 {
		fault("CrashLimit must be 0 with Requeuing.Classic: got %d (a classic queue does not count deliveries)", c.CrashLimit)
	}
	errs = append(errs, c.Policy.Validate())
	// Each asks for what the one before it has found to be sound.
	switch err := c.Strategy.Validate(); {
	case err != nil:
		errs = append(errs, err, c.Topology.Validate())
	case c.Queue == "":
	default:
		if err := c.Strategy.ValidateQueue(c.Queue); err != nil {
			errs = append(errs, err, c.Topology.Validate())
		} else {
			all := c.topology()
			if c.Priority != 0 && slices.ContainsFunc(all.Queues, c.singleActive) {
				fault("Priority must be 0 on a queue with x-single-active-consumer: got %d (with priorities, RabbitMQ may keep a consumer that has ended as the active one, and deliver nothing)", c.Priority)
			}
			errs = append(errs, checkTopology(all))
		}
	}
	return errors.Join(errs...)
}

// singleActive reports whether a queue is the work queue, and has a single active consumer.
func (c *WorkerConfig) singleActive(q topology.Queue) bool {
	return q.Name == c.Queue && q.Args["x-single-active-consumer"] == true
}

// topology is everything that must exist before the queue is consumed.
func (c WorkerConfig) topology() topology.Topology {
	return c.Topology.Merge(c.own(c.Strategy.WithDefaults().Route.Topology(c.Queue)))
}

// own returns what a Strategy wants declared, with the user's own declarations
// of the same queues and exchanges in place of its.
func (c *WorkerConfig) own(t topology.Topology) topology.Topology {
	t.Queues = slices.Clone(t.Queues)
	for i, q := range t.Queues {
		if n := slices.IndexFunc(c.Topology.Queues, func(mine topology.Queue) bool { return mine.Name == q.Name }); n >= 0 {
			t.Queues[i] = c.Topology.Queues[n]
		}
	}
	t.Exchanges = slices.Clone(t.Exchanges)
	for i, e := range t.Exchanges {
		if n := slices.IndexFunc(c.Topology.Exchanges, func(mine topology.Exchange) bool { return mine.Name == e.Name }); n >= 0 {
			t.Exchanges[i] = c.Topology.Exchanges[n]
		}
	}
	return t
}
