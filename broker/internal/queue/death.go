package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Reason says why a queue gave a message up, in the words of x-death.
type Reason string

// The reasons for dead-lettering (https://www.rabbitmq.com/docs/dlx#effects).
const (
	Rejected      Reason = "rejected"
	Expired       Reason = "expired"
	MaxLength     Reason = "maxlen"
	DeliveryLimit Reason = "delivery_limit"
)

// death is one entry of x-death: all deaths of a message in one queue for one reason. Apart from the count it tells of
// the first of them.
type death struct {
	queue      string
	reason     Reason
	count      int64
	time       time.Time
	exchange   string
	keys       []string
	expiration string // original-expiration; empty: none
}

// past is what a message brings along from the queues it has died in.
type past struct {
	published int     // size of the properties before the first death
	first     death   // as x-first-death-* tell it
	deaths    []death // most recent first
}

// DeadLetter is where a queue sends the messages it gives up.
type DeadLetter struct {
	Exchange   string
	RoutingKey *string // nil: each message keeps its own keys
	// AtLeastOnce keeps a message until all queues it is routed to have accepted it, and there is at least one.
	AtLeastOnce bool
}

// die returns the message that is published in place of one that a queue gave up. The history is kept beside the headers
// and written over them, so that an x-death header sent by a client counts for nothing, as in RabbitMQ 4.
func (m *Message) die(queue string, reason Reason, to *DeadLetter, now time.Time) *Message {
	dead := *m
	dead.Exchange = to.Exchange
	dead.TTL = NoTTL
	if to.RoutingKey != nil {
		dead.RoutingKey, dead.CC, dead.BCC = *to.RoutingKey, nil, nil
	}
	dead.Properties = editProperties(m.Properties, func(p *amqpwire.Properties) {
		this := death{
			queue: queue, reason: reason, count: 1, time: now, exchange: m.Exchange,
			keys: slices.Concat([]string{m.RoutingKey}, m.CC), expiration: p.Expiration,
		}
		dead.past = m.past.die(this, m.propertiesSize())
		// It has expired once: with the property left it could do so again further on.
		p.Expiration, p.Flags = "", p.Flags&^amqpwire.PropExpiration
		p.Headers = dead.past.headers(p.Headers, this)
		p.Flags |= amqpwire.PropHeaders
		dead.Headers = p.Headers
	})
	return &dead
}

// die returns the past of a message that has died once more, and whose properties are of that size.
func (p *past) die(this death, size int) *past {
	if p == nil {
		return &past{published: size, first: this, deaths: []death{this}}
	}
	return &past{published: p.published, first: p.first, deaths: record(p.deaths, this)}
}

// record puts the entry of the death that just happened in front, and leaves the order of the others.
func record(history []death, this death) []death {
	same := func(d death) bool { return d.queue == this.queue && d.reason == this.reason }
	i := slices.IndexFunc(history, same)
	if i < 0 {
		return slices.Concat([]death{this}, history)
	}
	again := history[i]
	again.count++
	return slices.Concat([]death{again}, history[:i], history[i+1:])
}

// DiedInCircle reports whether a message that this queue is about to be given has come round to it without anyone having
// rejected it on the way. Such a message would go round for ever and is dropped; a consumer's rejection is a deliberate
// act and breaks the circle (https://www.rabbitmq.com/docs/dlx#automatic-dead-letter-cycles).
func (m *Message) DiedInCircle(queue string) bool {
	if m.past == nil {
		return false
	}
	for _, d := range m.past.deaths {
		if d.reason == Rejected {
			return false
		}
		if d.queue == queue {
			return true
		}
	}
	return false
}

// headers writes the history over whatever a client has sent.
func (p *past) headers(h amqpwire.Table, last death) amqpwire.Table {
	entries := make(amqpwire.Array, len(p.deaths))
	for i, d := range p.deaths {
		entries[i] = d.table()
	}
	h = replace(h, "x-death", entries)
	for _, f := range []struct {
		prefix string
		death  death
	}{{"x-first-death-", p.first}, {"x-last-death-", last}} {
		h = replace(h, f.prefix+"reason", string(f.death.reason))
		h = replace(h, f.prefix+"queue", f.death.queue)
		h = replace(h, f.prefix+"exchange", f.death.exchange)
	}
	return h
}

// replace sets a header, and removes all others of that name: clients differ in which one they see.
func replace(h amqpwire.Table, name string, v any) amqpwire.Table { return h.Delete(name).Set(name, v) }

func (d death) table() amqpwire.Table {
	keys := make(amqpwire.Array, len(d.keys))
	for i, k := range d.keys {
		keys[i] = k
	}
	t := amqpwire.Table{
		{Name: "count", Value: d.count},
		{Name: "reason", Value: string(d.reason)},
		{Name: "queue", Value: d.queue},
		{Name: "time", Value: amqpwire.Timestamp(d.time.Unix())},
		{Name: "exchange", Value: d.exchange},
		{Name: "routing-keys", Value: keys},
	}
	if d.expiration != "" {
		t = append(t, amqpwire.Field{Name: "original-expiration", Value: d.expiration})
	}
	return t
}
