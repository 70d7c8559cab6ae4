package reprise

import (
	"bytes"
	"crypto/rand"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// delivery is a message as this worker got it, bound to the session it came on.
type delivery struct {
	amqp.Delivery
	session *session

	at      topology.Delivery
	history topology.History
	attempt int    // number of the attempt this delivery is for
	id      string // message id of its copies, should it have none itself
}

// delivery reads what came. With an error, the result knows nothing of earlier
// attempts.
func (w *Worker) delivery(s *session, raw amqp.Delivery) (*delivery, error) {
	d := &delivery{
		Delivery: raw,
		session:  s,
		id:       rand.Text(),
		at: topology.Delivery{
			Queue:       w.cfg.Queue,
			Exchange:    raw.Exchange,
			RoutingKey:  raw.RoutingKey,
			Redelivered: raw.Redelivered,
			Headers:     decodeTable(raw.Headers),
		},
	}
	err := guard("strategy", func() error {
		d.history = w.cfg.Strategy.Marks.Read(d.at)
		return nil
	})
	if err != nil {
		d.history, d.attempt = topology.History{}, 1
		return d, err
	}
	if d.history.Queue != "" && d.history.Queue != w.cfg.Queue {
		// The marks are another queue's: somebody passed the message on, headers
		// and all. It starts afresh here.
		d.history = topology.History{RetriesLeft: d.history.RetriesLeft}
	}
	d.attempt = d.history.Attempts + 1
	return d, nil
}

// message is what the handler sees. It shares no memory with the delivery: a
// handler that changes its message must not change the copy that is retried.
func (w *Worker) message(d *delivery) *Message {
	m := &Message{
		Body:            bytes.Clone(d.Body),
		Headers:         visible(decodeTable(d.Headers), w.cfg.Strategy.Marks),
		ContentType:     d.ContentType,
		ContentEncoding: d.ContentEncoding,
		CorrelationID:   d.CorrelationId,
		ReplyTo:         d.ReplyTo,
		MessageID:       d.MessageId,
		Type:            d.Type,
		AppID:           d.AppId,
		Priority:        d.Priority,
		Timestamp:       d.Timestamp,
		UserID:          d.UserId,
		Expiration:      parseExpiration(d.Expiration),
		Queue:           w.cfg.Queue,
		Attempt:         d.attempt,
		Errors:          append([]AttemptError(nil), d.history.Errors...),
		ErrorsDropped:   d.history.ErrorsDropped,
		FirstFailed:     d.history.FirstFailed,
		Redelivered:     d.Redelivered,
	}
	m.Exchange, m.RoutingKey = d.history.OriginAt(d.at)
	if user, ok := d.Headers[HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	if expiration, ok := d.Headers[HeaderExpiration].(string); ok {
		m.Expiration = parseExpiration(expiration)
	}
	return m
}
