package reprise

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// HeaderKey is the header with the key of a message that PublishKeyed has published.
const HeaderKey = "x-reprise-key"

// Keyed makes workers handle messages with the same key one at a time and in the order of their publication, in all
// processes, also while a message waits for its retry: the later messages with the same key wait, too. Messages with other keys
// continue. Publish the messages with Client.PublishKeyed.
//
// A message begins after all earlier messages with the same key were processed or parked. After a crash or a lost connection,
// messages with a key may be repeated from an earlier message on, in order. A handler whose process lost its connection without
// noticing may still run when another process repeats the message. A handler that ignores its context, and must not overwrite
// later results, stores Delivery.Epoch with each result and refuses results of a lower epoch.
//
// The queue is divided into partitions by key: the quorum queues {Queue}.part.0-of-8, {Queue}.part.0-of-8.held and so on. Each partition has
// one owner at a time, and all processes own about the same number of partitions. Concurrency limits the handlers of a process.
// All messages that wait are in the memory of the owners; retries have exact delays and need no wait queues.
//
// Keyed requires RabbitMQ 4.0 or later, or the embedded broker. It cannot be combined with AckThenPublish, Acked, Debounce
// or Priority, and not with an existing queue.
type Keyed struct {
	// Partitions is the number of partitions. It must be the same in all workers and publishers; the first worker of the
	// queue determines it, and Worker.Run of a worker with another number returns a *DeclareError. It limits the number of processes
	// that work at the same time. Required.
	Partitions int

	// Header is the header that contains the key if a message has no header HeaderKey, because another program has published it
	// to PartitionQueue. It must be the same in all workers. A number is formatted as text. Messages without both headers share
	// a key. Default: none.
	Header string

	// MaxHeld is the maximum number of messages of a partition that wait for a retry, or behind a message that waits for a
	// retry. A few more are possible. Default: 2000.
	MaxHeld int

	// MaxHeldBytes is the maximum size of the bodies of these messages. A few more bytes are possible. Default: 64 MiB.
	MaxHeldBytes int

	// OnFull is the behavior when a message cannot wait because of these limits. Default: ParkKey.
	OnFull OnFull

	// Rate is the maximum number of attempts with the same key that start per Per, in all processes together. The messages of a key
	// above its rate wait, in order, while other keys continue; they use no attempts. The owner of the partition counts alone, so a
	// new owner, for example after a crash, may start one Burst more: see docs/ordering.md. Messages without a key have one rate.
	//
	// If half of the messages of a partition that are fetched at the same time are unsettled, keys above their rate wait with those
	// of MaxHeld, of which they use at most half. They are not parked: if this half is full, the partition may stop until one of them
	// has started. Default: no limit.
	Rate float64

	// Per is the unit of Rate. Default: 1 s.
	Per time.Duration

	// Burst is the number of attempts with the same key that may start without a pause after a quiet time. Default: 1.
	Burst int
}

// OnFull is the behavior of a partition in which too many messages wait; see Keyed.
type OnFull int

const (
	// ParkKey parks a message that cannot wait, and then all messages with the same key that arrive while an earlier one
	// waits. They are parked in order.
	ParkKey OnFull = iota

	// PausePartition leaves the message in its partition. If 128 messages cannot wait, the partition stops until another
	// message was retried or parked.
	PausePartition
)

// Defaults of Keyed.
const (
	DefaultMaxHeld      = 2000
	DefaultMaxHeldBytes = 64 << 20
)

const maxPartitions = 256 // each needs two channels of a connection

func (k Keyed) withDefaults() Keyed {
	if k.MaxHeld == 0 {
		k.MaxHeld = DefaultMaxHeld
	}
	if k.MaxHeldBytes == 0 {
		k.MaxHeldBytes = DefaultMaxHeldBytes
	}
	if k.Rate != 0 {
		k.Per, k.Burst = cmp.Or(k.Per, time.Second), cmp.Or(k.Burst, 1)
	}
	return k
}

// maxBurstTime is the maximum time in which a key saves a burst.
const maxBurstTime = 365 * 24 * time.Hour

// rate returns the rate of each key, with the defaults.
func (k Keyed) rate() ordered.Rate {
	if k.Rate == 0 {
		return ordered.Rate{}
	}
	return ordered.Rate{Every: max(1, time.Duration(float64(k.Per)/k.Rate)), Burst: k.Burst}
}

// validate reports invalid fields, and fields of c that cannot be combined with OrderBy.
func (k Keyed) validate(c *WorkerConfig) error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("reprise: WorkerConfig."+format, args...))
	}
	if k.Partitions < 1 || k.Partitions > maxPartitions {
		fault("OrderBy.Partitions must be between 1 and %d: got %d", maxPartitions, k.Partitions)
	}
	if k.MaxHeld < 0 || k.MaxHeld > ordered.HeldWindow/2 {
		fault("OrderBy.MaxHeld must be between 0 and %d: got %d (0 means %d)", ordered.HeldWindow/2, k.MaxHeld, DefaultMaxHeld)
	}
	if k.MaxHeldBytes < 0 {
		fault("OrderBy.MaxHeldBytes must not be negative: got %d (0 means %d)", k.MaxHeldBytes, DefaultMaxHeldBytes)
	}
	if k.OnFull != ParkKey && k.OnFull != PausePartition {
		fault("OrderBy.OnFull must be ParkKey or PausePartition: got %d", k.OnFull)
	}
	d := k.withDefaults()
	switch {
	case k.Rate == 0 && (k.Per != 0 || k.Burst != 0):
		fault("OrderBy.Per and Burst require Rate")
	case !(k.Rate >= 0) || k.Per < 0 || k.Burst < 0: // NaN is not positive
		fault("OrderBy.Rate, Per and Burst must be positive: got %v, %s and %d", k.Rate, k.Per, k.Burst)
	case k.Rate > 0 && float64(d.Burst)*float64(d.Per)/k.Rate > float64(maxBurstTime):
		fault("OrderBy.Rate must permit a Burst within %s: got %v per %s with %d", maxBurstTime, k.Rate, d.Per, d.Burst)
	}
	if c.Order != PublishThenAck || c.Acked != nil || c.Debounce != nil || c.Priority != 0 || c.AsDelivered {
		fault("OrderBy cannot be combined with AckThenPublish, Acked, Debounce, Priority or AsDelivered")
	}
	// The held queue replaces the wait queues. Other routes and marks rely on the broker, which counts each change of the owner.
	switch c.Strategy.Route.(type) {
	case nil, topology.Buckets, keyedRoute:
	default:
		fault("Strategy.Route must be nil or topology.Buckets with OrderBy: got %T", c.Strategy.Route)
	}
	switch c.Strategy.Marks.(type) {
	case nil, topology.Trail:
	default:
		fault("Strategy.Marks must be nil or topology.Trail with OrderBy: got %T", c.Strategy.Marks)
	}
	return errors.Join(errs...)
}

// PublishKeyed publishes a message for workers with WorkerConfig.OrderBy and the same number of partitions. It sets the header
// HeaderKey and the routing key, and otherwise works like Publish. The order of two messages is defined if the first call has
// returned before the second call. If a call returns ErrUnconfirmed, the broker may store its message later.
func (c *Client) PublishKeyed(ctx context.Context, queue string, partitions int, key string, m *Message) error {
	if m == nil || partitions < 1 {
		return fmt.Errorf("%w: message must not be nil, and partitions must be positive: got %d", ErrInvalidMessage, partitions)
	}
	headers := make(map[string]any, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	headers[HeaderKey] = key
	m.Headers, m.Exchange, m.RoutingKey, m.Priority = headers, "", PartitionQueue(queue, key, partitions), 0
	return explainUnroutable(c.Publish(ctx, m), partitions)
}

// KeyAct is an act for the messages of a key that wait.
type KeyAct string

const (
	RetryFirst KeyAct = "retry"    // retry the first message now
	ParkFirst  KeyAct = "park"     // park the first message, so that the next one begins
	ParkAll    KeyAct = "park-all" // park the first message and the messages behind it
)

// KeyControl specifies an act for the messages of a key that wait.
type KeyControl struct {
	Queue      string // the work queue
	Partitions int    // of the queue
	Key        string
	Act        KeyAct
	Limit      int    // maximum number of messages that ParkAll parks, the oldest first. Default: no limit
	By         string // operator, for the reason of a parked message. Default: "an operator"
}

// ControlKey applies an act to the messages of a key that wait at this time, because the first of them waits for a retry. It stores
// the act in the held queues and returns. The owner of the partition carries it out, also after a crash; if no message of the key
// waits, the act has no effect.
func (c *Client) ControlKey(ctx context.Context, k KeyControl) error {
	switch {
	case k.Act != RetryFirst && k.Act != ParkFirst && k.Act != ParkAll:
		return fmt.Errorf("reprise: KeyControl.Act must be %q, %q or %q: got %q", RetryFirst, ParkFirst, ParkAll, k.Act)
	case k.Partitions < 1 || k.Partitions > maxPartitions:
		return fmt.Errorf("reprise: KeyControl.Partitions must be between 1 and %d: got %d", maxPartitions, k.Partitions)
	case k.Limit < 0:
		return fmt.Errorf("reprise: KeyControl.Limit must not be negative: got %d", k.Limit)
	}
	// Publishers may use another hash, so all owners receive the act.
	request, err := consume.KeyRequest(rand.Text(), k.Key, string(k.Act), cmp.Or(k.By, "an operator"), k.Limit)
	for n := range k.Partitions {
		if err == nil {
			err = c.publishOwn(ctx, "", consume.HeldQueue(consume.PartitionQueue(k.Queue, n, k.Partitions)), request)
		}
	}
	return explainUnroutable(err, k.Partitions)
}

// BlockedKey is a key whose first message waits for a retry, or is being retried, while the other messages of the key wait.
type BlockedKey struct {
	Key      string
	Since    time.Time // first failure of the first message
	Next     time.Time // its next attempt; past or zero: the attempt runs, or begins soon
	Attempts int       // its failed attempts
	Error    string    // error of the last one
	Behind   int       // messages that the worker has received, and that wait behind it
}

// BlockedKeys returns the blocked keys in the partitions that the worker owns: their number, and the n keys that have been blocked
// for the longest time. Client.ControlKey retries or parks their messages. BlockedKeys returns none without WorkerConfig.OrderBy and
// before Run, and omits partitions that do not answer until ctx is done. It is safe for concurrent use.
func (w *Worker) BlockedKeys(ctx context.Context, n int) (oldest []BlockedKey, total int) {
	all := w.consumer.Keys(ctx, max(0, n))
	for _, k := range all.Oldest {
		oldest = append(oldest, BlockedKey{Key: k.Key, Since: k.Since, Next: k.Next, Attempts: k.Attempts, Error: k.Error, Behind: k.Behind})
	}
	return oldest, all.Blocked
}

// explainUnroutable adds the cause to ErrUnroutable.
func explainUnroutable(err error, partitions int) error {
	if errors.Is(err, ErrUnroutable) {
		return fmt.Errorf("%w (no worker with OrderBy and %d partitions has declared its queues)", err, partitions)
	}
	return err
}

// PartitionQueue returns the queue in which workers with OrderBy expect the messages with a key: the FNV-1a hash of 64 bits of
// the key, modulo partitions, is the number of the partition.
func PartitionQueue(queue, key string, partitions int) string {
	return consume.PartitionQueue(queue, hashOf(key, partitions), partitions)
}

// hashOf returns the FNV-1a hash of 64 bits of a key, modulo n.
func hashOf(key string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum64() % uint64(n))
}

// Route returns a route that declares the partitions instead of the work queue and the wait queues of topology.Buckets. A worker with
// OrderBy uses it by default. Use it to declare the partitions before a worker runs.
func (k Keyed) Route() topology.Route { return keyedRoute{topology.Buckets{}, k} }

type keyedRoute struct {
	topology.Route
	Keyed Keyed
}

// disconnected is the time for which RabbitMQ 4.3 keeps a partition for its owner if the node of the owner's connection has failed. By
// default it is a minute. It is longer than the lease of an owner, so a former owner that is still connected to the node has stopped.
const disconnected = 15 * time.Second

// Topology returns the partitions and their held queues.
func (r keyedRoute) Topology(queue string) (t topology.Topology) {
	for n := range r.Keyed.Partitions {
		partition := consume.PartitionQueue(queue, n, r.Keyed.Partitions)
		for _, name := range []string{partition, consume.HeldQueue(partition)} {
			t.Queues = append(t.Queues, topology.Queue{Name: name, Args: topology.Table{
				"x-queue-type": "quorum", "x-single-active-consumer": true, "x-delivery-limit": int64(-1), "x-overflow": "reject-publish",
				"x-consumer-disconnected-timeout": disconnected.Milliseconds(),
			}})
		}
	}
	return r.Keyed.members(queue).Merge(t).Merge(r.Failed(topology.Delivery{Queue: queue, RoutingKey: queue}).Topology)
}

// members returns the queue of which all workers are consumers. It has no messages. Its arguments have no effect, but they contain
// the settings that all workers must share, because the broker refuses a declaration with other arguments.
func (k Keyed) members(queue string) topology.Topology {
	h := fnv.New32a()
	_, _ = h.Write([]byte(k.Header))
	args := topology.Table{
		"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-max-length": int64(k.Partitions), "x-max-length-bytes": int64(h.Sum32()),
	}
	return topology.Topology{Needs: "4.0", Queues: []topology.Queue{{Name: consume.MembersQueue(queue), Args: args}}}
}

// joinMembers declares the queue of the members before the other queues, so that a worker with other settings declares nothing.
func (w *Worker) joinMembers(ctx context.Context) error {
	if w.cfg.OrderBy == nil {
		return nil
	}
	return w.client.declare(ctx, w.client.consuming, w.cfg.OrderBy.members(w.cfg.Queue))
}

// Wait returns a hop with the exact delay. The copy does not use it: see Worker.wait.
func (r keyedRoute) Wait(_ topology.Delivery, delay time.Duration) (topology.Hop, error) {
	return topology.Hop{Delay: max(0, delay)}, nil
}

// keyed returns the configuration of the consumer.
func (w *Worker) keyed() *consume.Keyed {
	k := w.cfg.OrderBy
	if k == nil {
		return nil
	}
	return &consume.Keyed{
		Partitions: k.Partitions, MaxHeld: k.MaxHeld, MaxBytes: k.MaxHeldBytes, OnFull: ordered.Full(k.OnFull), Rate: k.rate(),
		Owner: (*owner)(w),
	}
}

// wait makes the consumer hold the copy of p until the time of its retry.
func (w *Worker) wait(d *delivery, p *plan) *Event {
	if err := d.Wait(time.Now().Add(p.hop.Delay), &p.copy); err != nil {
		w.logger(d, p).Warn("copy dropped", "error", err, "reason", context.Cause(d.Context()))
		return &Event{Kind: EventDropped, Err: err}
	}
	return nil
}

func (o *owner) OrderKey(d *consume.Delivery) string {
	for _, header := range []string{HeaderKey, o.cfg.OrderBy.Header} {
		if d.Headers[header] != nil {
			return headerText(d.Headers[header])
		}
	}
	return ""
}

func (o *owner) Follower(d *consume.Delivery) (*amqpconn.Message, error) {
	w := (*Worker)(o)
	p := &plan{}
	err := guard.Call("copy", func() (err error) {
		p.copy.Headers, err = amqpconn.EncodeTable(p.carry(w.arrived(d), w.planner.user()))
		return err
	})
	p.copy.Expiration = ""
	return &p.copy, err
}

// holdTime is the time after which the refusal of a copy by nacks is final. It is less than the time in which a copy must come back.
const holdTime = 30 * time.Second

func (o *owner) Hold(ctx context.Context, queue string, m *amqpconn.Message) error {
	began, retrier := time.Now(), retry.Retrier{Schedule: o.client.cfg.Reconnect}
	for {
		tried := time.Now()
		err := o.hold(ctx, queue, m)
		nacked := errors.Is(err, amqpconn.ErrNacked)
		// RabbitMQ also sends a nack if a leader does not answer the first publication of a channel in time (rabbit_fifo_client.erl).
		if nacked && time.Since(began) < holdTime && retry.Sleep(ctx, retrier.Failed(time.Since(tried))) == nil {
			continue
		}
		if nacked || publish.Classify(err) == publish.ContentRefused {
			return &consume.CopyRefusedError{Err: err}
		}
		return err
	}
}

func (o *owner) hold(ctx context.Context, queue string, m *amqpconn.Message) error {
	c := o.client
	conn, err := c.publishing.Get(ctx)
	if err != nil {
		return err
	}
	if err := amqpconn.CheckSize("", queue, m, conn.FrameSize(), 0); err != nil {
		return err
	}
	held := publish.NewMessage("", queue, m)
	if err := c.copies.Send(ctx, held, nil); err != nil { // without a timeout, because an alarm may take hours
		return err
	}
	return c.copies.Await(ctx, held, nil, nil)
}

func (o *owner) Blocked() bool { return errors.Is(o.client.publishing.Trouble(), ErrBlocked) }

func (o *owner) Park(ctx context.Context, in *consume.Delivery, reason error) {
	w := (*Worker)(o)
	d := w.arrived(in)
	text, errs := d.result.text, d.History.Errors
	switch _, byOperator := errors.AsType[consume.ErrParkedBy](reason); {
	case byOperator && len(errs) > 0:
		text = errs[len(errs)-1].Error // the archive groups messages by the last error
	case text != "":
		text += "\n\nparked: " + reason.Error()
	default:
		text = reason.Error()
	}
	d.result = result{reason: reason.Error(), text: text, err: reason}
	if in.Crashes > 0 {
		d.result.reason = "never settled"
	}
	d.result.outcome = unretryable
	w.settle(ctx, d)
}

// LaneQueue returns the queue to which the messages with a key are published, for workers with WorkerConfig.Lanes: the FNV-1a hash
// of 64 bits of the key, modulo lanes, is the number of the lane. A worker handles messages in all lanes, so publishers may use
// another hash.
func LaneQueue(queue, key string, lanes int) string {
	return topology.Lanes{Count: lanes}.Queue(queue, hashOf(key, lanes))
}

// laneRoute returns the route with Lanes: the inner route is nil, topology.Buckets or already topology.Lanes, and may be in a
// topology.ParkIn.
func (c *WorkerConfig) laneRoute() topology.Route {
	switch r := c.Strategy.Route.(type) {
	case nil:
		return topology.Lanes{Count: c.Lanes}
	case topology.Buckets:
		return topology.Lanes{Count: c.Lanes, Buckets: r}
	case topology.ParkIn:
		inner := *c
		inner.Strategy.Route = r.Route
		return topology.ParkIn{Route: inner.laneRoute(), Queue: r.Queue}
	default:
		return r
	}
}

// lanes returns the names of the lanes, or nil.
func (c *WorkerConfig) lanes() []string {
	if c.Lanes == 0 {
		return nil
	}
	return topology.Lanes{Count: c.Lanes}.Queues(c.Queue)
}

// validateLanes reports an invalid number of lanes, and fields that cannot be combined with Lanes.
func (c *WorkerConfig) validateLanes() error {
	route := c.Strategy.Route
	if c.Lanes > 0 {
		route = c.laneRoute()
	}
	if in, ok := route.(topology.ParkIn); ok {
		route = in.Route
	}
	r, divided := route.(topology.Lanes)
	switch {
	case c.Lanes < 0 || c.Lanes > topology.MaxLanes:
		return fmt.Errorf("reprise: WorkerConfig.Lanes must be between 0 and %d: got %d", topology.MaxLanes, c.Lanes)
	case divided && r.Count != c.Lanes:
		return fmt.Errorf("reprise: WorkerConfig.Lanes must be the number of lanes of Strategy.Route: got %d and %d", c.Lanes, r.Count)
	case c.Lanes == 0:
		return nil
	case !divided:
		return fmt.Errorf("reprise: WorkerConfig.Strategy.Route must be nil, topology.Buckets or topology.ParkIn with Lanes: got %T", c.Strategy.Route)
	case c.OrderBy != nil || c.Lease != 0 || c.Order != PublishThenAck || c.Acked != nil || c.Debounce != nil || c.Priority != 0 || c.AsDelivered:
		return errors.New("reprise: WorkerConfig.Lanes cannot be combined with AckThenPublish, Acked, AsDelivered, Debounce, Lease, OrderBy or Priority")
	}
	switch c.Strategy.Marks.(type) {
	case nil, topology.Trail:
		return nil
	}
	return fmt.Errorf("reprise: WorkerConfig.Strategy.Marks must be nil or topology.Trail with Lanes: got %T", c.Strategy.Marks)
}
