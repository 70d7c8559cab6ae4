package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// NoTTL means that no TTL is set. A TTL of 0 is a valid TTL.
const NoTTL time.Duration = -1

// Message is a published message. The queues to which it was routed share it, so it must not change.
type Message struct {
	Exchange   string
	RoutingKey string
	CC, BCC    []string // additional routing keys; deliveries omit the BCC header
	Properties []byte   // encoded, as in a delivery
	Headers    amqpwire.Table
	Body       []byte

	TTL         time.Duration // from the expiration property, or NoTTL
	Persistent  bool
	HasPriority bool
	Priority    uint8

	failures int64         // number of failed deliveries in earlier queues
	suspect  bool          // the message may already have been delivered or dead-lettered, before a crash of the broker
	history  *deathHistory // dead-lettering history; nil if the message was never dead-lettered
}

// failed returns a copy of the message with the number of failed deliveries set to times.
func (m *Message) failed(times int64) *Message {
	changed := *m
	changed.failures = times
	return &changed
}

// RoutingKeys returns all routing keys of the message (https://www.rabbitmq.com/docs/sender-selected).
func (m *Message) RoutingKeys() []string {
	return slices.Concat([]string{m.RoutingKey}, m.CC, m.BCC)
}

// propertiesSize returns the size of the properties as published, without the headers that dead-lettering adds.
func (m *Message) propertiesSize() int {
	if m.history != nil {
		return m.history.published
	}
	return len(m.Properties)
}

// Item is a message in one queue.
type Item struct {
	Message     *Message
	Redelivered bool

	deliveries int64 // number of failed deliveries so far
	acquired   int64 // number of all deliveries so far; only in a quorum queue
	presumed   bool  // acquired is a copy of deliveries, because a dead letter does not contain it

	holder  *Consumer // consumer that holds the unacked message; nil if the message is ready or was fetched with basic.get
	fetched bool      // unacked after basic.get

	order    uint64 // position among the messages of the same priority
	priority uint8
	bytes    int64     // size counted against MaxBytes
	deadline time.Time // zero if the message does not expire
	due      time.Time // end of the last delayed retry, even if it has passed; zero if the message was not delayed

	saved bool      // in the store
	ref   store.Ref // the message's last change in the store
}

// DeliveryProperties returns the encoded properties of the message, including the headers that this queue adds on delivery.
func (it *Item) DeliveryProperties() []byte {
	if it.acquired == 0 { // always 0 in a classic queue
		return it.Message.Properties
	}
	return editHeaders(it.Message.Properties, func(h amqpwire.Table) amqpwire.Table {
		if it.deliveries > 0 {
			h = h.Set("x-delivery-count", it.deliveries)
		}
		return h.Set("x-acquired-count", it.acquired)
	})
}

// ExpiryArgument is an argument of a consumer. If it is true, each message that expires has a header with this name: the time of
// its expiry, in milliseconds since 1970. Programs that move waiting messages to another broker use it. RabbitMQ has no
// equivalent.
const ExpiryArgument = "x-reprise-expiry"

// ExpiryProperties is like DeliveryProperties, with the header [ExpiryArgument].
func (it *Item) ExpiryProperties() []byte {
	if it.deadline.IsZero() {
		return it.DeliveryProperties()
	}
	return editHeaders(it.DeliveryProperties(), func(h amqpwire.Table) amqpwire.Table {
		return replace(h, ExpiryArgument, it.deadline.Add(time.Millisecond-1).UnixMilli())
	})
}

// editHeaders edits the headers of encoded properties. It creates the headers if they are missing.
func editHeaders(encoded []byte, edit func(amqpwire.Table) amqpwire.Table) []byte {
	return editProperties(encoded, func(p *amqpwire.Properties) {
		p.Headers = edit(p.Headers)
		p.Flags |= amqpwire.PropHeaders
	})
}

// editProperties edits encoded properties. Decoding cannot fail, because the broker decoded the properties when they
// were published, and encoding cannot fail, because all values have wire types. If either fails nevertheless,
// editProperties returns the properties unchanged.
func editProperties(encoded []byte, edit func(*amqpwire.Properties)) []byte {
	p, err := amqpwire.ParseProperties(encoded)
	if err != nil {
		return encoded
	}
	edit(&p)
	changed, err := p.Append(nil)
	if err != nil {
		return encoded
	}
	return changed
}

// Property implements [route.Source].
func (m *Message) Property(name string) any {
	var p amqpwire.Properties
	switch name {
	case "correlation-id":
		if p.Parse(m.Properties, amqpwire.PropCorrelationID) == nil && p.Has(amqpwire.PropCorrelationID) {
			return p.CorrelationID
		}
	case "message-id":
		if p.Parse(m.Properties, amqpwire.PropMessageID) == nil && p.Has(amqpwire.PropMessageID) {
			return p.MessageID
		}
	case "timestamp":
		if p.Parse(m.Properties, amqpwire.PropTimestamp) == nil && p.Has(amqpwire.PropTimestamp) {
			return p.Timestamp
		}
	}
	return nil
}
