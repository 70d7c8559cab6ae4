package consume

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/topology"
)

// Delivery is a message as the consumer received it. It belongs to the session that received it.
type Delivery struct {
	amqpconn.Delivery

	Queue  string         // of the configuration
	Source string         // the lane or the partition; "" without Lanes and Keyed
	Marked topology.Table // Headers in the types of package topology

	// These fields describe earlier attempts, according to the marks on the message.
	History    topology.History
	Attempt    int       // number of the attempt with this delivery
	Crashes    int       // number of earlier deliveries that were never settled
	CrashLimit int       // number of crashes after which the message is parked; 0: no limit
	Err        error     // the marks cannot be read, so earlier attempts are unknown; or the error of Owner.Key
	Began      time.Time // set by Begin

	Burst []*Delivery // equal messages that are handled and settled with this message

	Owned any // data of the owner

	FrameSize int32 // maximum frame size of the connection that delivered the message
	lane      int32 // index in Config.Lanes; 0 without Lanes

	// With Keyed:
	Epoch int64          // of the owner of the partition
	term  *term          // nil without Keyed
	entry *ordered.Entry // of the attempt

	session  *session
	arrived  time.Time
	inTime   context.Context
	gathered bool          // must not wait for equal messages
	sorted   bool          // bulkhead is set
	reported bool          // the owner was notified that the delivery is overdue
	held     holding       // reason why it stays unsettled
	alone    bool          // uses all slots; of the running attempt
	heldOf   *atomic.Int32 // subscription.held of the subscription that received it

	bulkhead *Bulkhead // limits the attempts with similar deliveries; may be nil

	// These fields belong to the running attempt.
	lease  *attemptLease // nil: none
	slot   *slot
	record func(error) // reports to the breaker; may be nil
}

// read reads the marks of earlier attempts.
func (d *Delivery) read() {
	if d.Attempt > 0 {
		return
	}
	c := d.session.consumer
	d.Marked = amqpconn.ReadTable(d.Headers)
	d.Attempt = 1
	d.CrashLimit = d.session.crashLimit()
	d.Err = guard.Call("strategy", func() error {
		d.History = c.Marks.Read(d.At())
		d.Crashes = amqpvalue.Crashes(c.Marks, d.At(), d.Redelivered, d.Marked)
		return nil
	})
	switch {
	case d.Err != nil:
		d.History = topology.History{}
		return
	case d.History.Queue != "" && d.History.Queue != c.Queue && d.History.Queue != d.Source:
		// The marks belong to another queue, because a program copied the message with all headers.
		d.History = topology.History{RetriesLeft: d.History.RetriesLeft}
	}
	d.Attempt += d.History.Attempts
	d.countLeases()
}

// At returns the delivery for a strategy.
func (d *Delivery) At() topology.Delivery { return d.at(d.Marked) }

func (d *Delivery) at(headers topology.Table) topology.Delivery {
	return topology.Delivery{
		Queue: d.Queue, Source: d.Source, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered, Headers: headers,
	}
}

// Deliveries that were never settled indicate a message that terminates its process before the
// process can record an error. Quorum queues count these deliveries in x-delivery-count. Before
// RabbitMQ 4.3, the count includes deliveries requeued by basic.nack. Classic queues do not
// count: redelivered means "once or more".
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling

// DefaultCrashLimit is the default CrashLimit if the broker counts only crashes, as RabbitMQ
// does since 4.3.
const DefaultCrashLimit = 5

// suspectAfter is the number of crashes after which a message is handled alone. A crash counts as a delivery of each
// message that was in flight. To park only the poison message, the worker must handle it alone before any of these
// messages reaches the limit.
const suspectAfter = 2

// isSuspect reports whether the delivery should be handled alone. The session calls it for each delivery, so it reads as few
// headers as possible.
func (d *Delivery) isSuspect() bool {
	if leaseCrashes(d.Headers) >= suspectAfter {
		return true
	}
	if !d.Redelivered {
		return false
	}
	if n, _ := amqpvalue.Integer(d.Headers["x-delivery-count"]); n < suspectAfter {
		return false
	}
	crashes := 0
	_ = guard.Call("strategy", func() error { // d.read gets the same error and stores it in d.Err
		at := d.at(amqpconn.ReadTable(d.Headers))
		crashes = amqpvalue.Crashes(d.session.consumer.Marks, at, at.Redelivered, at.Headers)
		return nil
	})
	return crashes >= suspectAfter
}

// crashLimit returns the number of crashes after which a message is parked; 0 means no limit.
func (s *session) crashLimit() int {
	switch limit := s.consumer.CrashLimit; {
	case s.consumer.Keyed != nil:
		return 0 // messages are returned at each change of the owner, also without an attempt
	case limit < 0:
		return 0
	case limit > 0:
		return limit
	case s.countsNacks:
		return 0 // only the broker's delivery limit applies
	}
	return DefaultCrashLimit
}

// Crashed reports whether the message has reached the CrashLimit.
func (d *Delivery) Crashed() bool { return d.CrashLimit > 0 && d.Crashes >= d.CrashLimit }

// Context returns a context that is canceled when the delivery can no longer be settled.
func (d *Delivery) Context() context.Context {
	if d.Leased() {
		return d.lease.ctx
	}
	return d.session.ctx
}

// ErrOverdue is the cause of the cancellation of InTime if the session continues.
var ErrOverdue = errors.New("reprise: cannot publish the copy before the acknowledgement timeout (see ConsumerTimeout)")

// InTime returns a context that is canceled when the delivery can no longer be settled, or when it must be settled
// because of the acknowledgement timeout.
func (d *Delivery) InTime() context.Context {
	if d.Leased() {
		return d.lease.ctx
	}
	return d.inTime
}

// Concurrency returns the maximum number of attempts that run at the same time.
func (d *Delivery) Concurrency() int { return d.session.consumer.Concurrency }

// Draining returns a channel that is closed when the consumer no longer starts attempts.
func (d *Delivery) Draining() <-chan struct{} { return d.session.consumer.draining.Done() }

// Compare returns a negative number if d was delivered before the other delivery, and a positive number if it was delivered
// after it.
func (d *Delivery) Compare(other *Delivery) int {
	return cmp.Or(d.arrived.Compare(other.arrived), cmp.Compare(d.Tag, other.Tag))
}

// Left returns the time until the delivery is overdue; see Deadline.
func (d *Delivery) Left() time.Duration {
	if d.Leased() {
		return noDeadline
	}
	return d.session.consumer.deadline.after - time.Since(d.arrived)
}

// ErrLost is returned if the channel of a delivery has closed.
var ErrLost = errors.New("reprise: the connection of the delivery is closed")

// Settle settles only this delivery, not its burst. It returns ErrLost if the channel has closed.
func (d *Delivery) Settle(v ack.Verb) error {
	if d.term != nil {
		if v != ack.Ack { // only copies move a message to another queue
			d.putBack()
			return nil
		}
		return d.term.settled(d, ordered.Result{})
	}
	if d.Leased() {
		return d.lease.settle(v)
	}
	if !d.session.acks.Settle(d.Tag, v) || d.session.ctx.Err() != nil {
		return ErrLost
	}
	return nil
}

// AckNow acknowledges only this delivery and waits until the broker has processed the ack. It returns ErrLost if the broker
// may not have processed it.
func (d *Delivery) AckNow() error {
	if !d.session.acks.AckNow(d.Tag) {
		return ErrLost
	}
	return nil
}

// Hold lets the session receive another message in the place of the delivery, which stays unsettled. It has no effect if
// the session already holds maxHeld times its prefetch, or if the owner must know that acknowledgements were processed.
func (d *Delivery) Hold() { d.hold(untilSettled, maxHeld*d.session.consumer.Prefetch) }

// hold implements Hold with a limit for the number of deliveries that the session holds for a reason.
func (d *Delivery) hold(reason holding, limit int) {
	s := d.session
	if d.held != notHeld || s.consumer.Certain || d.term != nil || d.Leased() {
		return
	}
	d.held = reason
	n := int32(1 + len(d.Burst))
	d.heldOf.Add(n)
	if s.held[reason].Add(n) <= int32(limit) {
		select {
		case s.heldMore <- struct{}{}:
		default:
		}
	}
}

// Release ends the effect of Hold.
func (d *Delivery) Release() {
	if d.held != notHeld {
		n := int32(1 + len(d.Burst))
		d.session.held[d.held].Add(-n)
		d.heldOf.Add(-n)
		d.held = notHeld
	}
}

// holding is a reason why a delivery stays unsettled although its attempt has ended.
type holding uint8

const (
	notHeld      holding = iota
	untilSettled         // see Hold
	untilAcked           // see AckAt
	holdings             // number of reasons
)

// maxHeld limits the number of deliveries that a session holds, because they occupy memory here and in the broker.
const maxHeld = 8

// AckAll acknowledges the burst and the delivery.
func (d *Delivery) AckAll() {
	d.AckBurst()
	_ = d.Settle(ack.Ack) // after an error, the broker redelivers the message
}

// AckBurst acknowledges the other deliveries of the burst.
func (d *Delivery) AckBurst() {
	for _, other := range d.Burst {
		d.session.acks.Settle(other.Tag, ack.Ack)
	}
}

// Requeue requeues the burst and then the delivery, in order of arrival.
func (d *Delivery) Requeue() {
	if d.term != nil {
		d.putBack()
		return
	}
	if d.Leased() {
		_ = d.lease.settle(ack.DeadLetter) // after an error, the broker returns the message
		return
	}
	for _, other := range d.Burst {
		d.session.acks.Settle(other.Tag, ack.NackRequeue)
	}
	d.session.acks.Settle(d.Tag, ack.NackRequeue)
}
