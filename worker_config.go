package reprise

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/consume"
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
	// that move or keep messages: such a worker does not report the outcomes of
	// replayed messages. Default false: each message as it was first published.
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
		errs = append(errs, c.Debounce.validate(consume.Deadline(d.ConsumerTimeout)))
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
	if len(c.Topology.Queues)+len(c.Topology.Exchanges) == 0 {
		return t
	}
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

// Order says what comes first where a copy takes a failed message's place: publishing
// the copy, or acknowledging the original.
type Order int

const (
	// PublishThenAck publishes the copy, waits until the broker has it, and then
	// acknowledges the original. A crash in between leaves both: it can
	// duplicate, and cannot lose. The default.
	PublishThenAck Order = iota

	// AckThenPublish acknowledges the original, waits until the broker has done so,
	// and then publishes the copy, once: where the confirm is lost, it is not
	// published again. A crash in between leaves neither: it can lose, and cannot
	// duplicate. It is for messages that are worth less than the harm a second one
	// does. It costs a round trip more. Prefetch and Concurrency are at most 32: see
	// docs/guarantees.md.
	AckThenPublish
)

// Limiter bounds how often a worker begins an attempt: Wait returns when the
// next one may. The rate.Limiter of golang.org/x/time/rate is one, and can be
// shared by several workers. It must be safe for concurrent use, and Wait must end
// when ctx does. An error other than the context's is taken for a limit that cannot
// be kept, and pauses the worker for a second.
//
// While it waits, so do the messages that were fetched, at most Prefetch of them,
// and go back to their queue before ConsumerTimeout is over. Before RabbitMQ 4.3 that
// costs a message one of the deliveries it is allowed: for a limit so slow, set a
// Prefetch that is handled in that time.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Breaker keeps a worker from consuming while what its handler calls is down, so
// that messages do not use up their attempts for nothing. Package breaker has
// one. It must be safe for concurrent use, and may be shared by workers that
// depend on the same thing. Its methods must return at once: consuming waits for them.
type Breaker interface {
	// Allow is asked before each attempt. With wait above 0, the worker stops
	// consuming for that long. Otherwise the attempt begins, and record is called once
	// with what the handler returned, which may be an ErrNotAttempted, or with that
	// itself.
	Allow() (record func(error), wait time.Duration)

	// Probing reports whether it is trying if things are better: one attempt
	// at a time then. What else was fetched stays in the queue.
	Probing() bool
}

// ErrNotAttempted is what a Breaker's record is given for an attempt that was
// allowed and then says nothing about the downstream: it was cut short by the
// end of the worker, or never begun. Middleware that did not call the handler for a
// reason of its own says so by an error that wraps it, as idempotent.ErrBusy does.
var ErrNotAttempted = consume.ErrNotAttempted

// Debounce handles one of many equal messages that arrive in a burst: the first
// waits for Window; whatever equals it and arrives meanwhile joins it; then the
// newest of them is handled, and what is said about it settles all. None is
// acknowledged before that: when the newest is retried or parked, it stands for
// the others, and when the worker ends or its connection is lost, all are
// delivered again.
//
//	arrive    a   a  b a                        a
//	handle             └── Window ──► a  b      └── Window ──► a
//
// What waits is unsettled: it counts towards Prefetch, which bounds how large a
// burst can be seen as one. Only what reaches the same worker is compared.
type Debounce struct {
	// Window is how long the first of a burst waits for others. Required.
	Window time.Duration

	// Key tells what is equal: of messages with the same key only one is handled.
	// ContentKey will do where messages that say the same ask for the same thing. A
	// message with the key "" is handled without waiting. It must return at once:
	// consuming waits for it. Required.
	Key func(*Message) string
}

// validate reports a Window that is none, or in which the broker loses patience, and
// a Key that is missing.
func (d Debounce) validate(patience time.Duration) error {
	if d.Key == nil {
		return errors.New("reprise: Debounce.Key is nil: say what makes messages equal, such as reprise.ContentKey, to which message ids are nothing")
	}
	if d.Window <= 0 || d.Window > patience/2 {
		return fmt.Errorf("reprise: Debounce.Window %s: use a positive duration such as 10s, up to half of the time after which messages are given back, which is %s: see ConsumerTimeout", d.Window, patience)
	}
	return nil
}

// ContentKey is a Debounce.Key: messages are equal if they have the same body, Type,
// CorrelationID and ReplyTo, and were published to the same exchange with the same
// routing key. MessageID, Timestamp and headers are not looked at, since they differ
// each time an event is published (headers because of tracing). So it suits messages
// that say that something has changed, and not those that each ask for something to be
// done, such as a payment.
func ContentKey(m *Message) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.Exchange), []byte(m.RoutingKey), []byte(m.Type), []byte(m.CorrelationID), []byte(m.ReplyTo), m.Body} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // a hash does not fail
		_, _ = h.Write(part)
	}
	return string(h.Sum(nil))
}
