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
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/topology"
)

// Default values of the fields of WorkerConfig.
const (
	DefaultConcurrency  = 1
	DefaultDrainTimeout = 30 * time.Second

	DefaultConsumerTimeout = 30 * time.Minute
)

// WorkerConfig configures a Worker. Queue and Handler are required.
type WorkerConfig struct {
	// Queue is the name of the work queue. Required. It must not be a stream, which AMQP does not distinguish from a queue.
	// A stream keeps acknowledged messages, and each retry would add another message.
	Queue string

	// Handler processes the messages. Required.
	Handler Handler

	// Policy decides the number of attempts, their total duration and the delays between them. Default: 19 attempts over
	// about 24 hours, see Policy.
	Policy Policy

	// Middleware wraps the Handler. The first is the outermost. The type Middleware documents the recommended order.
	// Default: none.
	Middleware []Middleware

	// AsDelivered makes the handler receive each message as the broker delivers it: with the exchange and the routing key
	// of this delivery, and with all headers. These include the headers of Reprise and of the broker (x-death and related
	// headers), and the headers that store the properties that a copy must not have. Attempt is 1, and Errors is empty.
	// Failed messages are settled as usual. Use it for programs that move or store messages. Such a worker does not report
	// the outcomes of replayed messages. Default: false; the handler receives the message as first published.
	AsDelivered bool

	// Acked is called once for each message whose handler returned nil. A nil error means that the broker has certainly
	// received the acknowledgement, so it does not redeliver the message, even if the connection fails. A non-nil error
	// means that the connection failed before this was certain, so the broker may redeliver the message. m is the message
	// that was passed to the outermost Middleware, or to the handler if there is no middleware. Use Acked in programs that
	// must distinguish a redelivered message from a different message with the same content.
	//
	// AMQP does not confirm acks, so the worker sends a request after an ack. All acks that are sent together share one
	// request. On RabbitMQ's quorum queues, the response proves at most 32 acks at a time, so Prefetch and Concurrency
	// must be at most 32 with Acked. See docs/guarantees.md. Acked must be safe for concurrent use. A drain waits for calls
	// of Acked to return. Default: none.
	Acked func(m *Delivery, err error)

	// Strategy determines how failed messages are delayed, marked and parked. Default: delays of up to 49 days through the
	// wait queues {Queue}.wait.…, and the failed queue {Queue}.failed. See package topology.
	Strategy topology.Strategy

	// Order is the order in which the worker publishes the copy of a failed message and acknowledges the original.
	// Default: PublishThenAck, which never loses a message.
	Order Order

	// Topology is declared before the worker consumes, together with the topology of the Strategy. It usually contains
	// the exchange and the bindings of the queue. A Queue or an Exchange in Topology replaces the declaration of the
	// same name in the Strategy. The replaced object can be the work queue, {Queue}.failed, a wait queue, or an
	// exchange of a preset. You must then ensure that the object does not lose messages. Default: empty.
	Topology topology.Topology

	// KeepDeclaring makes Run repeat a declaration that the broker refuses, after the delays of Config.Reconnect, for
	// example until an operator has removed a conflicting queue. Default: false, so Run returns a *DeclareError if the
	// first declaration is refused.
	KeepDeclaring bool

	// Concurrency is the maximum number of handlers that run at the same time. Default: 1, so that messages are handled in
	// the order of the queue, as long as no message fails; with Batch, the size of the batch.
	Concurrency int

	// Prefetch is the maximum number of unsettled messages of this worker. Messages whose retry copies are not confirmed yet
	// count toward it. The worker may hold one more message: if the copy of a message that is handled alone (see CrashLimit) is
	// not confirmed within a twentieth of ConsumerTimeout, the worker fetches other messages again. With Lanes, it applies to
	// each lane. The worker also keeps the originals of retries for a few seconds while a wait queue is new: see "Survive a
	// kill" in docs/guarantees.md. Minimum: Concurrency. Maximum: 65535, or 32 with AckThenPublish or Acked. Default:
	// 4×Concurrency, but at least 16 (256 with Debounce) and at most the maximum.
	Prefetch int

	// Priority is the priority of this worker among the consumers of the queue. The broker delivers messages to the
	// consumers with the highest priority first, and to other consumers only when those have reached their prefetch.
	// Priority may be negative. Default: 0, the priority of consumers that do not set a priority.
	//
	// Priority must be 0 on a queue with x-single-active-consumer, because of a defect in RabbitMQ 4.3. If the active
	// consumer of a quorum queue stops with unsettled messages while a consumer with a higher priority waits, RabbitMQ keeps
	// the stopped consumer. When the other consumer stops, RabbitMQ activates the stopped consumer again, and delivers no
	// messages from then on. Validate refuses this combination for a queue in Topology. It cannot check an existing queue,
	// because AMQP does not report the arguments. https://www.rabbitmq.com/docs/consumer-priority
	Priority int32

	// Limiter limits the rate of attempts. Default: no limit.
	Limiter Limiter

	// Breaker stops the worker from consuming while a service that the handler calls is down. Default: none.
	Breaker Breaker

	// Debounce makes the worker handle only one of several equal messages that arrive in a burst. Default: nil, so that the
	// worker handles each message.
	Debounce *Debounce

	// OrderBy makes workers handle the messages of each key in order, also through retries. Default: nil, so that a retry
	// does not delay other messages.
	OrderBy *Keyed

	// Lanes is the number of lanes of the queue, so that many messages with the same key, such as a tenant, do not delay the
	// messages with other keys. Publish to LaneQueue. The worker consumes the lanes {Queue}.lane.0-of-8 and so on instead of Queue.
	// The next attempt belongs to the lane with the fewest running attempts; lanes with the same number take turns. The lanes have
	// common wait queues and a common failed queue, and a retry returns to its lane. Keys in the same lane delay each other, and
	// there is no order.
	//
	// The number should be much higher than the number of keys that have many messages at the same time. The maximum is
	// topology.MaxLanes. To change it, run workers of both numbers until the old lanes and the wait queues are empty. Lanes cannot be combined with
	// AckThenPublish, Acked, AsDelivered, Debounce, Lease, OrderBy or Priority. Default: 0, so that the worker consumes Queue.
	Lanes int

	// CrashLimit is the maximum number of deliveries of a message that end unsettled, because the worker's process exits
	// or its connection fails. When a message reaches this number, the worker parks the message without calling the
	// handler. After two unsettled deliveries, the worker handles the message alone, so that a crash does not affect other
	// messages. A negative value means no limit. Default: 5 on quorum queues of RabbitMQ 4.3 and later. Earlier versions
	// also count requeues, so with them only the broker's delivery limit applies by default.
	//
	// CrashLimit has no effect on classic queues, which do not count deliveries. The embedded broker does not count
	// deliveries that ended with its own process.
	CrashLimit int

	// ConsumerTimeout is the acknowledgement timeout of the broker (consumer_timeout), after which it closes the channel
	// of a consumer that has not settled a message. When four fifths of this time have passed since the delivery of a
	// message, the worker reports EventTimeoutNear if the handler is still running, and requeues the message if it has not
	// started it or could not publish its copy. Minimum: 1 min. A negative value means that the broker has no such
	// timeout. Default: 30 min, the default of RabbitMQ. https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
	ConsumerTimeout time.Duration

	// Lease lets attempts run for any time, longer than the ConsumerTimeout, and continue after a short loss of the connection. If
	// an attempt runs longer than the Lease, the worker moves its message into the lease queue of the process,
	// {Queue}.lease.{random}, and renews the lease every third of this time. If the process exits, or is disconnected for longer
	// than the Lease, the message returns to the queue, and another worker handles it again: see Checkpoint. A disconnected
	// attempt is canceled at that time with the cause ErrLeaseLost. Each renewal publishes the message, so choose a longer Lease
	// for large messages. Minimum: 1 s. Maximum: half of ConsumerTimeout. A Lease requires a Strategy that retries by copies and
	// has the default Marks, and excludes AckThenPublish, Acked, AsDelivered, Debounce, OrderBy and Batch; the default of Prefetch
	// becomes Concurrency. With a Prefetch above 1, a Lease requires RabbitMQ 4.3 or later. See docs/how-to/protect-a-service.md.
	// Default: none.
	Lease time.Duration

	// DrainTimeout is the maximum time that a shutdown waits for running handlers before it cancels their context. If
	// the context that was passed to Shutdown is done earlier, the shutdown cancels their context at that time.
	// Default: 30 s.
	DrainTimeout time.Duration
}

// certain reports whether the worker must know that the broker has received an ack.
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
	if c.OrderBy != nil {
		keyed := c.OrderBy.withDefaults()
		c.OrderBy = &keyed
		route, _ := c.Strategy.Route.(keyedRoute)
		if route.Route == nil {
			route.Route = c.Strategy.Route
		}
		c.Strategy.Route = keyedRoute{route.Route, keyed}
	}
	if c.Lanes > 0 {
		c.Strategy.Route = c.laneRoute()
	}
	if c.Concurrency == 0 {
		c.Concurrency = max(DefaultConcurrency, min(largestBatch(c.Handler), math.MaxUint16))
	}
	if c.Prefetch == 0 && c.Lease > 0 {
		c.Prefetch = c.Concurrency // no message waits behind a long attempt while another worker is idle
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

// Validate reports missing and contradictory fields, and suggests valid values.
func (c WorkerConfig) Validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("reprise: WorkerConfig."+format, args...))
	}
	d := c.withDefaults()
	if c.Queue == "" {
		fault("Queue must not be empty (set the queue to consume)")
	}
	mux, _ := c.Handler.(*Mux)
	if isNil(c.Handler) {
		fault(nilHandler)
	}
	errs = append(errs, validateHandler(c.Handler, consume.Deadline(d.ConsumerTimeout)))
	if c.Concurrency < 0 || d.Concurrency > math.MaxUint16 {
		fault("Concurrency must be between 0 and %d: got %d (0 means %d)", math.MaxUint16, c.Concurrency, DefaultConcurrency)
	}
	if c.Prefetch < 0 || d.Prefetch > math.MaxUint16 || d.Prefetch < d.Concurrency {
		fault("Prefetch must be between Concurrency (%d) and %d: got %d (0 means the default)", d.Concurrency, math.MaxUint16, c.Prefetch)
	} else if d.Prefetch > c.maxPrefetch() {
		fault("Prefetch and Concurrency must be at most %d with AckThenPublish or Acked: got %d and %d (run several workers)", c.maxPrefetch(), d.Prefetch, d.Concurrency)
	}
	if n := largestBatch(c.Handler); 0 < n && d.Concurrency < n && n <= math.MaxUint16 {
		fault("Concurrency must be at least %d, the size of the Batch: got %d", n, c.Concurrency)
	}
	if c.DrainTimeout < 0 {
		fault("DrainTimeout must not be negative: got %s (0 means %s)", c.DrainTimeout, DefaultDrainTimeout)
	}
	if c.Order != PublishThenAck && c.Order != AckThenPublish {
		fault("Order must be PublishThenAck or AckThenPublish: got %d", c.Order)
	}
	if c.ConsumerTimeout > 0 && c.ConsumerTimeout < time.Minute {
		fault("ConsumerTimeout must be at least 1m: got %s (use the timeout of the broker; 0 means %s, a negative number no timeout)", c.ConsumerTimeout, DefaultConsumerTimeout)
	}
	if slices.ContainsFunc(c.Middleware, func(m Middleware) bool { return m == nil }) {
		fault("Middleware must not contain nil")
	}
	if c.OrderBy != nil {
		errs = append(errs, c.OrderBy.validate(&c))
	}
	errs = append(errs, c.validateLanes())
	if c.Debounce != nil {
		errs = append(errs, c.Debounce.validate(consume.Deadline(d.ConsumerTimeout)))
	}
	switch d.Strategy.Marks.(type) {
	case topology.Deliveries, topology.CountDown:
		if c.Policy.limitsTime() || mux.limitsTime() {
			fault("Policy.GiveUpAfter must be 0 with this Strategy: messages do not record the time of their first failure (limit MaxAttempts, or use another Strategy)")
		}
	}
	if m, ok := d.Strategy.Marks.(topology.Deliveries); ok && m.Classic && c.CrashLimit > 0 {
		fault("CrashLimit must be 0 with Requeuing.Classic: got %d (a classic queue does not count deliveries)", c.CrashLimit)
	}
	errs = append(errs, c.Policy.Validate())
	if c.Lanes > 0 {
		c.Strategy.Route = d.Strategy.Route
	}
	// Each check assumes that the previous checks have succeeded.
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
				fault("Priority must be 0 on a queue with x-single-active-consumer: got %d (with priorities, RabbitMQ may keep a stopped consumer as the active consumer, and deliver no messages)", c.Priority)
			}
			if c.Lease != 0 {
				errs = append(errs, d.validateLease())
			}
			errs = append(errs, checkTopology(all))
		}
	}
	return errors.Join(errs...)
}

// minLease leaves time for renewals.
const minLease = time.Second

// validateLease reports an invalid Lease, and fields that exclude a Lease. Defaults are set.
func (c *WorkerConfig) validateLease() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("reprise: WorkerConfig.Lease must "+format, args...))
	}
	most := time.Duration(math.MaxInt64)
	if c.ConsumerTimeout > 0 {
		most = c.ConsumerTimeout / 2
	}
	if c.Lease < minLease || c.Lease > most {
		fault("be between %s and %s, half of ConsumerTimeout: got %s (0 means none)", minLease, most, c.Lease)
	}
	for _, x := range []struct {
		excluded string
		used     bool
	}{
		{"AckThenPublish (use PublishThenAck)", c.Order == AckThenPublish},
		{"Acked (use Config.Observer)", c.Acked != nil},
		{"AsDelivered", c.AsDelivered},
		{"Debounce", c.Debounce != nil},
		{"OrderBy", c.OrderBy != nil},
		{"Batch (use HandlerFunc)", largestBatch(c.Handler) > 0},
	} {
		if x.used {
			fault("be 0 with %s: got %s", x.excluded, c.Lease)
		}
	}
	if _, ok := c.Strategy.Marks.(topology.Trail); !ok || !c.copies() {
		fault("be 0 with this Strategy: got %s (use a Strategy that retries and parks by copies, with the default Marks)", c.Lease)
	}
	errs = append(errs, topology.Topology{Queues: []topology.Queue{c.leaseQueue()}}.Validate())
	return errors.Join(errs...)
}

// copies reports whether the route retries and parks by copies.
func (c *WorkerConfig) copies() (yes bool) {
	_ = guard.Call("strategy", func() error {
		d := topology.Delivery{Queue: c.Queue, RoutingKey: c.Queue}
		hop, err := c.Strategy.Route.Wait(d, 0)
		yes = err == nil && hop.Way == topology.Copy && c.Strategy.Route.Failed(d).Way == topology.Copy
		return nil
	})
	return yes
}

// singleActive reports whether q is the work queue and has a single active consumer.
func (c *WorkerConfig) singleActive(q topology.Queue) bool {
	return q.Name == c.Queue && q.Args["x-single-active-consumer"] == true
}

// topology returns all objects that must exist before the worker consumes the queue.
func (c WorkerConfig) topology() topology.Topology {
	return c.Topology.Merge(c.override(c.Strategy.WithDefaults().Route.Topology(c.Queue)))
}

// override returns t, the topology of a Strategy. Queues and exchanges in c.Topology replace its objects of the same name.
func (c *WorkerConfig) override(t topology.Topology) topology.Topology {
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

// Order is the order in which the worker publishes the copy of a failed message and acknowledges the original.
type Order int

const (
	// PublishThenAck publishes the copy, waits for the confirm, and then acknowledges the original. After a crash in
	// between, both messages exist. This order can duplicate a message, but cannot lose it. It is the default.
	PublishThenAck Order = iota

	// AckThenPublish acknowledges the original, waits until the broker has processed the ack, and then publishes the copy.
	// It does not republish a copy whose confirm is lost. After a crash in between, neither message exists. This order can
	// lose a message, but cannot duplicate it. Use it if a duplicate causes more damage than a lost message. AckThenPublish
	// requires an additional round trip. Prefetch and Concurrency must be at most 32: see docs/guarantees.md.
	AckThenPublish
)

// Limiter limits the rate at which a worker starts attempts. Wait returns when the next attempt may start. The
// rate.Limiter of golang.org/x/time/rate implements Limiter. Several workers may share a Limiter. A Limiter must be
// safe for concurrent use, and Wait must return when ctx is done. Any error other than the error of ctx means that Wait
// cannot enforce the limit; the worker then pauses for a second.
//
// While a worker waits, fetched messages also wait, at most Prefetch of them. The worker requeues them before the
// ConsumerTimeout. Before RabbitMQ 4.3, each requeue counts towards the delivery limit of the message. With a low
// limit, choose a small Prefetch: the worker must be able to handle Prefetch messages within the ConsumerTimeout.
//
// If a Limiter also has the method Done(), the worker calls it once for each successful Wait, when the attempt has ended or
// cannot start. So a Limiter can limit the number of attempts that run at the same time. If it has the method TryWait() bool, the
// worker calls TryWait before Wait; true replaces a successful Wait. TryWait must return immediately. Package limit has Limiters
// that all processes share.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Breaker stops a worker from consuming while a service that its handler calls is down, so that messages do not exhaust
// their attempts needlessly. Package breaker implements it. A Breaker must be safe for concurrent use. Workers that
// depend on the same service may share a Breaker. Its methods must return immediately, because they block consumption.
type Breaker interface {
	// Allow is called before each attempt. If wait is above 0, the worker stops consuming for that time. Otherwise the
	// attempt may start, and the worker calls record once when it ends, with the error of the handler (which may wrap
	// ErrNotAttempted) or with ErrNotAttempted itself.
	Allow() (record func(error), wait time.Duration)

	// Probing reports whether the breaker is half-open. The worker then runs one attempt at a time, as a probe. The other
	// messages stay in the queue.
	Probing() bool
}

// ErrNotAttempted is passed to the record function of a Breaker if an attempt was allowed, but does not indicate the
// state of the downstream service, because a shutdown of the worker interrupted it, or because it never started.
// Middleware that does not call the handler, for a reason unrelated to the service, returns an error that wraps
// ErrNotAttempted, for example idempotent.ErrBusy.
var ErrNotAttempted = consume.ErrNotAttempted

// Debounce makes the worker handle one of several equal messages that arrive in a burst. The first message waits for
// the Window, together with equal messages that arrive during the Window. Then the worker handles the newest of them,
// and its outcome settles all. Until then, the worker does not acknowledge any of them. If the newest message is
// retried or parked, the worker acknowledges the others. If the worker stops or its connection is lost, the broker
// redelivers all of them.
//
//	arrive    a   a  b a                        a
//	handle             └── Window ──► a  b      └── Window ──► a
//
// Waiting messages are unsettled and count towards Prefetch, which therefore limits the size of a burst. Only messages of
// the same worker are compared.
type Debounce struct {
	// Window is the time that the first message of a burst waits for others. Required.
	Window time.Duration

	// Key returns equal strings for equal messages. ContentKey is suitable if messages with the same content request the
	// same action. A message with the key "" is handled without waiting. Key must return immediately, because it blocks
	// consumption. Required.
	Key func(*Delivery) string
}

// validate reports an invalid Window, for example more than half of the acknowledgement timeout, and a missing Key.
func (d Debounce) validate(timeout time.Duration) error {
	if d.Key == nil {
		return errors.New("reprise: Debounce.Key must not be nil (reprise.ContentKey compares messages by content)")
	}
	if d.Window <= 0 || d.Window > timeout/2 {
		return fmt.Errorf("reprise: Debounce.Window must be positive and at most %s, half of the time after which deliveries are requeued: got %s (see ConsumerTimeout)", timeout/2, d.Window)
	}
	return nil
}

// ContentKey is a Debounce.Key. Messages are equal if they have the same body, Type, CorrelationID and ReplyTo, and
// were published to the same exchange with the same routing key. ContentKey ignores MessageID, Timestamp and headers,
// because they differ each time an event is published (headers because of tracing). Use it for messages that report a
// change. Do not use it for messages that each request an action, such as a payment.
func ContentKey(m *Delivery) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(m.Exchange), []byte(m.RoutingKey), []byte(m.Type), []byte(m.CorrelationID), []byte(m.ReplyTo), m.Body} {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(part)))) // hash.Hash.Write never returns an error
		_, _ = h.Write(part)
	}
	return string(h.Sum(nil))
}
