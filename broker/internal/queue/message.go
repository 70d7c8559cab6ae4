package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// NoTTL stands for the absence of a time to live, since zero is a valid one.
const NoTTL time.Duration = -1

// Message is what was published. All queues it went to share it, so nobody changes it.
type Message struct {
	Exchange   string
	RoutingKey string
	CC, BCC    []string // further routing keys; the BCC header itself is never delivered
	Properties []byte   // encoded, as they are delivered
	Headers    amqpwire.Table
	Body       []byte

	TTL         time.Duration // from the expiration property; or NoTTL
	Persistent  bool
	HasPriority bool
	Priority    uint8

	failures int64 // deliveries that failed in the queues it died in
	suspect  bool  // it may have been where it is going before, when the broker ended without a word
	past     *past // nil: it has not died
}

// failed is the message with another count of failures.
func (m *Message) failed(times int64) *Message {
	changed := *m
	changed.failures = times
	return &changed
}

// RoutingKeys returns all keys that the message is routed by (https://www.rabbitmq.com/docs/sender-selected).
func (m *Message) RoutingKeys() []string {
	return slices.Concat([]string{m.RoutingKey}, m.CC, m.BCC)
}

// propertiesSize is that of the properties as they were published: what dead-lettering adds to them does not count.
func (m *Message) propertiesSize() int {
	if m.past != nil {
		return m.past.published
	}
	return len(m.Properties)
}

// Item is a message in one queue.
type Item struct {
	Message     *Message
	Redelivered bool

	deliveries int64 // earlier ones that failed
	acquired   int64 // all earlier ones, if this is a quorum queue
	presumed   bool  // the latter, from the former: a dead letter does not bring it along

	holder  *Consumer // who has it, unacked; nil: nobody, or whoever asked for it by basic.get
	fetched bool      // by basic.get, and not settled

	order    uint64 // position among those of its priority
	priority uint8
	bytes    int64     // that count against the queue's limit
	deadline time.Time // zero: does not expire
	due      time.Time // of a delayed retry: when it is to be ready again, or was; zero: there was none

	kept bool      // in the store
	ref  store.Ref // there
}

// DeliveryProperties returns the message's properties, encoded, with what this queue adds to them on delivery.
func (it *Item) DeliveryProperties() []byte {
	if it.acquired == 0 { // never, in a classic queue
		return it.Message.Properties
	}
	return editHeaders(it.Message.Properties, func(h amqpwire.Table) amqpwire.Table {
		if it.deliveries > 0 {
			h = h.Set("x-delivery-count", it.deliveries)
		}
		return h.Set("x-acquired-count", it.acquired)
	})
}

// editHeaders changes the headers of encoded properties, and creates them where there are none.
func editHeaders(encoded []byte, edit func(amqpwire.Table) amqpwire.Table) []byte {
	return editProperties(encoded, func(p *amqpwire.Properties) {
		p.Headers = edit(p.Headers)
		p.Flags |= amqpwire.PropHeaders
	})
}

// editProperties changes encoded properties. Whatever is in a queue was decoded once when it was published, and is
// encoded from values of the wire's own types, so that neither direction can fail; if one did, the message would go on
// as it was rather than be lost.
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
