package reprise

import (
	"fmt"
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/topology"
)

// Message is a message to publish, or one that a Handler is given.
//
// A handler sees it as it was first published, also on a retry: origin,
// properties and headers are restored from what its copies carry. Reprise's own
// headers and RabbitMQ's dead-letter history (x-death and its kin) are left
// out.
type Message struct {
	Body []byte

	// Exchange and RoutingKey are where the message is, or was first,
	// published. Exchange "" is the default exchange: it routes to the queue
	// named by RoutingKey. A handler may be shown what a publisher made up: after
	// a retry they come from headers, which any publisher can write. Do not
	// grant rights by them.
	Exchange   string
	RoutingKey string

	// Headers hold any value AMQP can carry: see topology.Table, whose exact
	// types they keep. Publish also takes map[string]any for nested tables, and
	// int, which travels as 64 bits. The header CC names further routing keys;
	// a retry shows it, but is not routed by it.
	Headers map[string]any

	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	MessageID       string // unique per message; Publish fills it where empty, and see MessageIDAssigned
	Type            string
	AppID           string
	Priority        uint8

	// Timestamp is when the message was made, in whole seconds. If it is zero, Publish
	// sends the current time, and PublishAt the time at which the message arrives, so that
	// a worker knows how long the message has waited (package prommetrics).
	Timestamp time.Time

	// NoTimestamp makes Publish send a message without a timestamp if Timestamp is zero.
	// It is for programs that pass messages on unchanged. A worker does not measure the age
	// of such a message. Default: false. It is never set on delivery.
	NoTimestamp bool

	// UserID, as a property, was checked by the broker to be the publishing
	// user. On a retry it may come from a header instead, and any publisher can
	// write headers: do not grant rights by it.
	UserID string

	// Expiration is how long the message may wait in a queue; 0 means for ever,
	// and ten years (of 365 days) are the most.
	// Whole milliseconds, rounded up. It holds until the first attempt: waiting
	// for a retry and being parked do not count. A message that expires in the
	// work queue is moved by the broker where that queue dead-letters to: with
	// the default strategy to {queue}.failed, where it has no recorded errors.
	Expiration time.Duration

	// Queue is the work queue. It and all that follows is set on delivery, and
	// ignored by Publish.
	Queue         string
	Attempt       int            // number of this attempt, from 1
	Errors        []AttemptError // of the attempts before, oldest first; the middle may be missing
	ErrorsDropped int            // how many are missing after the first of Errors
	FirstFailed   time.Time      // when the first attempt failed; zero if none did, or it is not known
	Redelivered   bool           // the broker delivered it before and was given no answer, or got it back

	// MessageIDAssigned reports that the message came without an id, and that the
	// worker has made MessageID. The copies of this delivery carry it, so that every
	// attempt after this one has it. But if this attempt is cut short, by a crash or a
	// lost connection, the message comes again without an id and is given another one:
	// nothing tells it from an equal message. A message that is retried without a copy
	// (topology.Requeuing, topology.DeadLettering, topology.DelayedRetry) is given none.
	MessageIDAssigned bool
}

// AttemptError is an earlier attempt that failed.
type AttemptError = topology.AttemptError

// encode returns the message as it is published, or ErrInvalidMessage.
func (m *Message) encode() (amqpconn.Message, error) {
	headers := maps.Clone(m.Headers) // it may be written after Publish has returned
	if err := amqpconn.EncodeInPlace(headers); err != nil {
		return amqpconn.Message{}, err
	}
	if m.Expiration < 0 {
		return amqpconn.Message{}, fmt.Errorf("%w: Expiration %s is negative: use 0 for none", ErrInvalidMessage, m.Expiration)
	}
	if m.Expiration > amqpconn.MaxExpiration {
		return amqpconn.Message{}, fmt.Errorf("%w: Expiration %s is too long: at most %s (ten years) is possible, 0 is for ever",
			ErrInvalidMessage, m.Expiration, amqpconn.MaxExpiration)
	}
	return amqpconn.Message{
		Headers:         headers,
		ContentType:     m.ContentType,
		ContentEncoding: m.ContentEncoding,
		CorrelationID:   m.CorrelationID,
		ReplyTo:         m.ReplyTo,
		Expiration:      amqpconn.FormatExpiration(m.Expiration),
		MessageID:       m.MessageID,
		Type:            m.Type,
		UserID:          m.UserID,
		AppID:           m.AppID,
		Timestamp:       m.Timestamp,
		Priority:        m.Priority,
		Body:            m.Body,
	}, nil
}
