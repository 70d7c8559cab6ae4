package reprise

import (
	"bytes"
	"crypto/rand"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// delivery is a message as this worker got it, bound to the session it came on.
type delivery struct {
	amqpconn.Delivery
	session *session
	arrived time.Time

	at      topology.Delivery
	history topology.History
	attempt int    // number of the attempt this delivery is for
	crashes int    // how often it was delivered before and never settled
	id      string // see copyID
	err     error  // the Marks failed: nothing is known of earlier attempts

	burst    []*delivery // others like it, handled with it: see debouncer
	given    *Message    // to the handler; nil until then
	reminded bool        // that it is overdue; only the session's serve uses it
}

// delivery is what has just come in. Nothing of it is looked at before read.
func (s *session) delivery(raw amqpconn.Incoming, now time.Time) *delivery {
	s.acks.Delivered()
	return &delivery{Delivery: amqpconn.NewDelivery(raw), session: s, arrived: now}
}

// read reads what earlier attempts wrote on it.
func (d *delivery) read() {
	w := d.session.worker
	d.at = topology.Delivery{
		Queue:       w.cfg.Queue,
		Exchange:    d.Exchange,
		RoutingKey:  d.RoutingKey,
		Redelivered: d.Redelivered,
		Headers:     amqpconn.ReadTable(d.Headers),
	}
	d.err = guard("strategy", func() error {
		d.history = w.cfg.Strategy.Marks.Read(d.at)
		d.crashes = amqpvalue.Crashes(w.cfg.Strategy.Marks, d.at, d.at.Redelivered, d.at.Headers)
		return nil
	})
	if d.err != nil {
		d.history, d.attempt = topology.History{}, 1
		return
	}
	if d.history.Queue != "" && d.history.Queue != w.cfg.Queue {
		// The marks are another queue's: somebody passed the message on, headers
		// and all. It starts afresh here.
		d.history = topology.History{RetriesLeft: d.history.RetriesLeft}
	}
	d.attempt = d.history.Attempts + 1
}

// copyID is the message id of its copies, should it have none itself: the same for
// each. It is not called by two at a time.
func (d *delivery) copyID() string {
	if d.id == "" {
		d.id = rand.Text()
	}
	return d.id
}

// ack acknowledges it, and those that were handled with it. It returns false where
// it is too late for that.
func (d *delivery) ack() bool {
	for _, b := range d.burst {
		b.session.acks.Settle(b.Tag, ack.Ack)
	}
	return d.session.acks.Settle(d.Tag, ack.Ack) && d.session.ctx.Err() == nil
}

// ackNow is ack that waits for the broker to have done it, and an error where that
// is not known.
func (d *delivery) ackNow() error {
	for _, b := range d.burst {
		b.session.acks.Settle(b.Tag, ack.Ack)
	}
	if !d.session.acks.AckNow(d.Tag) {
		return errLostWithSession
	}
	return nil
}

// giveBack returns it to its queue, after those that were to be handled with it:
// in the order in which they came.
func (d *delivery) giveBack() {
	for _, b := range d.burst {
		b.session.acks.Settle(b.Tag, ack.GiveBack)
	}
	d.session.acks.Settle(d.Tag, ack.GiveBack)
}

// message is what the handler sees. It shares no memory with the delivery: a
// handler that changes its message must not change the copy that is retried.
func (w *Worker) message(d *delivery) *Message {
	if w.cfg.AsDelivered {
		return messageOf(&d.Delivery, w.cfg.Queue, amqpconn.CloneTable(d.Headers))
	}
	m := messageOf(&d.Delivery, w.cfg.Queue, visible(d.Headers, w.cfg.Strategy.Marks))
	m.Attempt, m.FirstFailed = d.attempt, d.history.FirstFailed
	m.Errors, m.ErrorsDropped = append([]AttemptError(nil), d.history.Errors...), d.history.ErrorsDropped
	m.Exchange, m.RoutingKey = d.history.OriginAt(d.at)
	if user, ok := d.Headers[HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	if expiration, ok := d.Headers[HeaderExpiration].(string); ok {
		m.Expiration = amqpconn.ParseExpiration(expiration)
	}
	if m.MessageID == "" && w.copies(d) {
		m.MessageID, m.MessageIDAssigned = d.copyID(), true
	}
	return m
}

// copies reports whether a delivery that fails is retried as a copy of it.
func (w *Worker) copies(d *delivery) bool {
	var hop topology.Hop
	err := guard("strategy", func() (err error) {
		hop, err = w.cfg.Strategy.Route.Wait(d.at, 0)
		return err
	})
	return err == nil && hop.Way == topology.Copy
}

// messageOf is a message as the broker has it, but for its headers.
func messageOf(d *amqpconn.Delivery, queue string, headers map[string]any) *Message {
	return &Message{
		Body:            bytes.Clone(d.Body),
		Headers:         headers,
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		CorrelationID:   d.CorrelationID,
		ReplyTo:         d.ReplyTo,
		MessageID:       d.MessageID,
		Type:            d.Type,
		AppID:           d.AppID,
		Priority:        d.Priority,
		Timestamp:       d.Timestamp,
		UserID:          d.UserID,
		Expiration:      amqpconn.ParseExpiration(d.Expiration),
		Exchange:        d.Exchange,
		RoutingKey:      d.RoutingKey,
		Queue:           queue,
		Attempt:         1,
		Redelivered:     d.Redelivered,
	}
}
