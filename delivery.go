package reprise

import (
	"bytes"
	"crypto/rand"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/topology"
)

// delivery is a message that the worker received. It shares one allocation with the message for the handler.
type delivery struct {
	consume.Delivery
	id      string // message ID; if the message has none and is retried by copies, an ID that the worker has assigned
	message Delivery
	handled bool   // the handler received the message
	result  result // outcome of the attempt
}

// result is the classified outcome of an attempt.
type result struct {
	verdict
	err     error
	text    string // error string that is recorded with the attempt
	reason  string // reason for parking, if the policy was not called
	headers topology.Table
	took    time.Duration
}

// arrived returns the delivery that New allocated, with its ID.
func (w *Worker) arrived(in *consume.Delivery) *delivery {
	d := in.Owned.(*delivery)
	if d.id == "" {
		if d.id = d.MessageID; d.id == "" && w.planner.copies && !w.cfg.AsDelivered {
			d.id = rand.Text()
		}
	}
	return d
}

// handlerMessage returns the message that the handler received, or nil.
func (d *delivery) handlerMessage() *Delivery {
	if !d.handled {
		return nil
	}
	return &d.message
}

func (d *delivery) age(now time.Time) time.Duration {
	if d.Timestamp.IsZero() {
		return 0
	}
	return max(0, now.Sub(d.Timestamp))
}

// message returns the message for the handler. It does not share memory with the delivery, so a handler that changes the
// message does not change the copy that is retried.
func (w *Worker) message(d *delivery) Delivery {
	if w.cfg.AsDelivered {
		return messageOf(&d.Delivery.Delivery, w.cfg.Queue, amqpconn.CloneTable(d.Headers))
	}
	original := d.Delivery.Delivery
	if expiration, ok := d.Headers[HeaderExpiration].(string); ok {
		original.Expiration = expiration
	}
	m := messageOf(&original, w.cfg.Queue, w.visibleHeaders(d))
	m.Attempt, m.FirstFailed = d.Attempt, d.History.FirstFailed
	m.Errors, m.ErrorsDropped = append([]AttemptError(nil), d.History.Errors...), d.History.ErrorsDropped
	m.Exchange, m.RoutingKey = d.History.OriginAt(d.At)
	if _, marked := d.Headers[HeaderRedelivered]; marked {
		m.Redelivered = true
	}
	if user, ok := d.Headers[HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	m.MessageID, m.MessageIDAssigned = d.id, d.id != d.MessageID
	return m
}

// messageOf returns the message of a delivery. It has the given headers, and no state of earlier attempts.
func messageOf(d *amqpconn.Delivery, queue string, headers map[string]any) Delivery {
	return Delivery{
		Message: Message{
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
			Zero:            PropertySet(d.Zero),
			Timestamp:       d.Timestamp,
			UserID:          d.UserID,
			Expiration:      amqpconn.ParseExpiration(d.Expiration),
			Exchange:        d.Exchange,
			RoutingKey:      d.RoutingKey,
		},
		Queue:       queue,
		Attempt:     1,
		Redelivered: d.Redelivered,
	}
}

// visibleHeaders returns the headers of the message as first published, and the headers of Annotate.
func (w *Worker) visibleHeaders(d *delivery) map[string]any {
	out := make(map[string]any, len(d.Headers))
	for k, v := range d.Headers {
		if !amqpvalue.IsBrokerHeader(k) && !w.cfg.Strategy.Marks.Owns(k) && !isOwnHeader(k) {
			out[k] = amqpconn.CloneValue(v)
		}
	}
	if cc, stashed := d.Headers[HeaderCC]; stashed {
		out[headerCC] = amqpconn.CloneValue(cc)
	}
	return out
}
