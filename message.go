package reprise

import (
	"fmt"
	"maps"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/topology"
)

// Message is a message to publish, and the part of a Delivery that its publisher determined.
type Message struct {
	Body []byte

	// Exchange and RoutingKey are the destination of the message. Exchange "" is the default exchange, which routes to the
	// queue with the name RoutingKey. A handler gets the original destination. Do not use it for authorization: after a
	// retry the values come from headers, which any publisher can write.
	Exchange   string
	RoutingKey string

	// Headers may contain any value that AMQP supports, and preserve the exact types: see topology.Table. Publish also
	// accepts map[string]any for nested tables, and int, which is sent as 64 bits. The header CC lists additional routing
	// keys. On a retry, the handler gets the header CC, but the broker does not route the message to those keys.
	Headers map[string]any

	ContentType     string
	ContentEncoding string
	CorrelationID   string
	ReplyTo         string
	MessageID       string // unique for each message; if it is empty, Publish generates it; see also MessageIDAssigned
	Type            string
	AppID           string
	Priority        uint8

	// Zero contains the properties that the message has with an empty value, or with priority 0. For a broker, priority 0
	// differs from no priority: a quorum queue of RabbitMQ 4.3 delivers a message without a priority as if it had priority
	// 4. A handler gets the properties of the original message. Properties whose value is not empty have no effect.
	// Default: none, so properties without a value are not sent.
	Zero PropertySet

	// Timestamp is the time at which the message was created, in whole seconds. If it is zero, Publish sends the current
	// time, and PublishAt sends the scheduled time. Package prommetrics uses it to measure the waiting time of messages.
	Timestamp time.Time

	// NoTimestamp makes Publish send a message without a timestamp if Timestamp is zero. It is for programs that forward
	// messages unchanged. A worker does not measure the age of a message without a timestamp. Default: false. A worker never
	// sets NoTimestamp.
	NoTimestamp bool

	// UserID is the name of the publishing user. The broker checks the property user-id. On a retry the value may come from
	// a header instead, which any publisher can write. Do not use it for authorization.
	UserID string

	// Expiration is the maximum time that the message may wait in a queue, rounded up to whole milliseconds. 0 means no
	// limit. Maximum: ten years (of 365 days). Expiration applies until the first attempt. The time before a retry or
	// in the failed queue does not count. If a message expires in the work queue, the broker dead-letters it. With the
	// default strategy, the message moves to {queue}.failed, without recorded errors.
	Expiration time.Duration
}

// Delivery is a message that a Handler receives.
//
// A handler gets the original message, even on a retry, unless WorkerConfig.AsDelivered is set. The worker restores the
// origin, the properties and the headers from the copy. It omits the headers that the worker added to the copy (except
// the headers of Annotate), and the dead-letter history of RabbitMQ (x-death and related headers).
//
// To publish a delivered message again, pass &d.Message to Publish. It is then a new message: the header CC has an effect again, and
// the broker refuses the UserID of another user.
type Delivery struct {
	Message

	Queue         string         // the work queue
	Attempt       int            // number of this attempt, from 1.
	Errors        []AttemptError // earlier attempts, oldest first; some in the middle may be missing.
	ErrorsDropped int            // number of omitted errors between the first and the second of Errors.
	FirstFailed   time.Time      // time of the first failed attempt; zero if no attempt has failed, or if the time is unknown.

	// Redelivered reports that this attempt or an earlier attempt began with a redelivery: the broker delivered the message
	// before, and it was requeued or not settled. A handler may thus have processed the message without an effect on Attempt.
	// The copy for a retry carries this information in HeaderRedelivered. A retry without a copy can lose it.
	Redelivered bool

	// MessageIDAssigned reports that the message arrived without an ID, and that the worker has generated MessageID.
	// The copies of this delivery carry the ID, so all later attempts have it. If a crash or a lost connection
	// interrupts this attempt, the broker redelivers the message without an ID, and the worker generates another ID.
	// You cannot distinguish this redelivery from another message with the same content. A message that is retried
	// without a copy (topology.Requeuing, topology.DeadLettering, topology.DelayedRetry) does not get an ID.
	MessageIDAssigned bool

	// Epoch grows with each change of the process that owns the partition of the message; see Keyed. It is 0 without
	// WorkerConfig.OrderBy.
	Epoch int64
}

// PropertySet is a set of properties of a message.
type PropertySet uint16

// Properties that Message.Zero can contain. A timestamp of 0 is time.Unix(0, 0) in Message.Timestamp.
const (
	PropertyContentType     = PropertySet(amqpwire.PropContentType)
	PropertyContentEncoding = PropertySet(amqpwire.PropContentEncoding)
	PropertyHeaders         = PropertySet(amqpwire.PropHeaders) // a table without headers
	PropertyPriority        = PropertySet(amqpwire.PropPriority)
	PropertyCorrelationID   = PropertySet(amqpwire.PropCorrelationID)
	PropertyReplyTo         = PropertySet(amqpwire.PropReplyTo)
	PropertyMessageID       = PropertySet(amqpwire.PropMessageID) // publishing replaces an empty ID
	PropertyType            = PropertySet(amqpwire.PropType)
	PropertyAppID           = PropertySet(amqpwire.PropAppID)
)

// sendable contains the properties that a broker accepts with an empty value.
const sendable = PropertyContentType | PropertyContentEncoding | PropertyHeaders | PropertyPriority | PropertyCorrelationID |
	PropertyReplyTo | PropertyType | PropertyAppID

// Has reports whether the set contains all of the given properties.
func (s PropertySet) Has(all PropertySet) bool { return s&all == all }

// AttemptError describes an earlier attempt that failed. Its fields are
//
//	Attempt  int           // from 1
//	Time     time.Time     // end of the attempt; whole seconds
//	Error    string        // possibly truncated
//	Host     string        // host of the handler
//	Duration time.Duration // run time of the handler; whole milliseconds
type AttemptError = topology.AttemptError

// content returns the message for publishing, or ErrInvalidMessage.
func (m *Message) content() (amqpconn.Message, error) {
	headers := maps.Clone(m.Headers) // the caller may change it after Publish has returned
	if err := amqpconn.EncodeInPlace(headers); err != nil {
		return amqpconn.Message{}, err
	}
	if m.Expiration < 0 {
		return amqpconn.Message{}, fmt.Errorf("%w: Expiration must not be negative: got %s (0 means no expiration)", ErrInvalidMessage, m.Expiration)
	}
	if m.Expiration > amqpconn.MaxExpiration {
		return amqpconn.Message{}, fmt.Errorf("%w: Expiration must be at most %s (ten years): got %s (0 means no expiration)", ErrInvalidMessage, amqpconn.MaxExpiration, m.Expiration)
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
		Zero:            amqpwire.PropertyFlags(m.Zero & sendable),
	}, nil
}
