package consume

import (
	"context"
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/topology"
)

// Delivery is a message as the consumer got it, bound to the session it came on.
type Delivery struct {
	amqpconn.Delivery

	// Of earlier attempts, as the marks on the message tell.
	At      topology.Delivery
	History topology.History
	Attempt int       // the number of the attempt that this delivery is for
	Crashes int       // earlier deliveries that were never settled
	Err     error     // the marks failed: nothing is known of earlier attempts
	Began   time.Time // set by Begin

	Burst []*Delivery // equal messages, handled and settled with it

	Owned any // what the owner knows of it

	session  *session
	arrived  time.Time
	inTime   context.Context
	gathered bool // it waits for no others like it
	reminded bool // that it is overdue

	// Of its attempt.
	slot   *slot
	alone  bool        // it has all slots
	record func(error) // of the breaker, or nil
}

// read reads the marks of earlier attempts.
func (d *Delivery) read() {
	if d.Attempt > 0 {
		return
	}
	c := d.session.consumer
	d.At = d.at(amqpconn.ReadTable(d.Headers))
	d.Attempt = 1
	d.Err = guard.Call("strategy", func() error {
		d.History = c.Marks.Read(d.At)
		d.Crashes = amqpvalue.Crashes(c.Marks, d.At, d.Redelivered, d.At.Headers)
		return nil
	})
	switch {
	case d.Err != nil:
		d.History = topology.History{}
		return
	case d.History.Queue != "" && d.History.Queue != c.Queue:
		// The marks are another queue's: a program passed the message on, headers and all.
		d.History = topology.History{RetriesLeft: d.History.RetriesLeft}
	}
	d.Attempt += d.History.Attempts
}

func (d *Delivery) at(headers topology.Table) topology.Delivery {
	return topology.Delivery{
		Queue: d.session.consumer.Queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered, Headers: headers,
	}
}

// Deliveries that were never settled are a sign of a message that ends the process that
// handles it, long before there is an error to record. Quorum queues count them in
// x-delivery-count, and before RabbitMQ 4.3 also those that were given back by basic.nack.
// Classic queues do not count: redelivered means "once or more".
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling

// DefaultCrashLimit is the default CrashLimit if the broker counts crashes and nothing
// else, as RabbitMQ does since 4.3.
const DefaultCrashLimit = 5

// suspectAfter is the number of crashes after which a message is handled alone. The end of
// a process costs all messages that were delivered to it one delivery. To be parked
// without its neighbors, the guilty one must be alone before the limit is reached.
const suspectAfter = 2

// suspect reports whether the delivery should be handled alone. It is asked for each
// delivery, so it reads little.
func (d *Delivery) suspect() bool {
	if !d.Redelivered {
		return false
	}
	if n, _ := amqpvalue.Integer(d.Headers["x-delivery-count"]); n < suspectAfter {
		return false
	}
	crashes := 0
	_ = guard.Call("strategy", func() error { // read meets the error again
		at := d.at(amqpconn.ReadTable(d.Headers))
		crashes = amqpvalue.Crashes(d.session.consumer.Marks, at, at.Redelivered, at.Headers)
		return nil
	})
	return crashes >= suspectAfter
}

// CrashLimit returns the number of crashes that park the message; 0 means any number.
func (d *Delivery) CrashLimit() int {
	switch limit := d.session.consumer.CrashLimit; {
	case limit < 0:
		return 0
	case limit > 0:
		return limit
	case d.session.countsNacks:
		return 0 // the broker's own delivery limit has to do
	}
	return DefaultCrashLimit
}

// Crashed reports whether the message has reached the CrashLimit.
func (d *Delivery) Crashed() bool {
	limit := d.CrashLimit()
	return limit > 0 && d.Crashes >= limit
}

// FrameSize returns the largest frame of the connection that delivered the message.
func (d *Delivery) FrameSize() int { return d.session.conn.FrameSize() }

// Context returns a context that ends when the delivery cannot be settled any more.
func (d *Delivery) Context() context.Context { return d.session.ctx }

// ErrOverdue is the reason for the end of InTime if the session goes on.
var ErrOverdue = errors.New("reprise: its copy could not be published in time: see ConsumerTimeout")

// InTime returns a context that ends when the delivery cannot be settled any more, or has to
// be because of the acknowledgement timeout.
func (d *Delivery) InTime() context.Context { return d.inTime }

// Left returns the time until the delivery has to be settled.
func (d *Delivery) Left() time.Duration {
	return d.session.consumer.deadline.after - time.Since(d.arrived)
}

// ErrLost means that the channel of a delivery is gone.
var ErrLost = errors.New("reprise: the connection it was delivered on is gone")

// Settle settles the delivery itself. It returns ErrLost if it is too late for that.
func (d *Delivery) Settle(v ack.Verb) error {
	if !d.session.acks.Settle(d.Tag, v) || d.session.ctx.Err() != nil {
		return ErrLost
	}
	return nil
}

// AckNow acknowledges the delivery itself and waits until the broker has done that. It
// returns ErrLost if that is not known.
func (d *Delivery) AckNow() error {
	if !d.session.acks.AckNow(d.Tag) {
		return ErrLost
	}
	return nil
}

// AckBurst acknowledges the others of the burst.
func (d *Delivery) AckBurst() {
	for _, other := range d.Burst {
		d.session.acks.Settle(other.Tag, ack.Ack)
	}
}

// GiveBack returns the burst and then the delivery to their queue, in the order in which
// they came.
func (d *Delivery) GiveBack() {
	for _, other := range d.Burst {
		d.session.acks.Settle(other.Tag, ack.GiveBack)
	}
	d.session.acks.Settle(d.Tag, ack.GiveBack)
}
