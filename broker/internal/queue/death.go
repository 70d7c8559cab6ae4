package queue

import (
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Reason is the reason why a message was dead-lettered, as in the x-death header.
type Reason string

// The reasons for dead-lettering (https://www.rabbitmq.com/docs/dlx#effects).
const (
	Rejected      Reason = "rejected"
	Expired       Reason = "expired"
	MaxLength     Reason = "maxlen"
	DeliveryLimit Reason = "delivery_limit"
)

// death is an entry in x-death. It combines all dead-letterings of a message in one queue for one reason. All fields
// except count describe the first of these dead-letterings.
type death struct {
	queue      string
	reason     Reason
	count      int64
	time       time.Time
	exchange   string
	keys       []string
	expiration string // original-expiration, or ""
}

// deathHistory is the dead-lettering history of a message.
type deathHistory struct {
	published int     // size of the properties before the first death
	first     death   // described by the x-first-death-* headers
	deaths    []death // most recent first
}

// DeadLetter is the dead-letter target of a queue.
type DeadLetter struct {
	Exchange   string
	RoutingKey *string // nil means that each message keeps its routing keys
	// AtLeastOnce makes the queue keep a message until the message was routed to at least one queue and all target
	// queues have accepted it.
	AtLeastOnce bool
}

// die returns the dead letter for a message. It overwrites the dead-lettering headers with the history, which is a
// separate field of the message. As in RabbitMQ 4, an x-death header from a client therefore has no effect.
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
		dead.history = m.history.die(this, m.propertiesSize())
		// Remove the expiration, so that the message does not also expire in the next queue.
		p.Expiration, p.Flags = "", p.Flags&^amqpwire.PropExpiration
		p.Headers = dead.history.headers(p.Headers, this)
		p.Flags |= amqpwire.PropHeaders
		dead.Headers = p.Headers
	})
	return &dead
}

// die returns the history with an additional death. If p is nil, size must be the size of the properties as published.
func (p *deathHistory) die(this death, size int) *deathHistory {
	if p == nil {
		return &deathHistory{published: size, first: this, deaths: []death{this}}
	}
	return &deathHistory{published: p.published, first: p.first, deaths: record(p.deaths, this)}
}

// record returns the history with an additional death. The entry for the queue and reason moves to the front, and the
// order of the other entries does not change.
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

// DiedInCircle reports whether a message that enters the given queue would complete a cycle without a rejection. Such a
// message would circulate indefinitely, so the broker drops it. A rejection by a consumer is intentional, so a cycle
// with a rejection is permitted (https://www.rabbitmq.com/docs/dlx#automatic-dead-letter-cycles).
func (m *Message) DiedInCircle(queue string) bool {
	if m.history == nil {
		return false
	}
	for _, d := range m.history.deaths {
		if d.reason == Rejected {
			return false
		}
		if d.queue == queue {
			return true
		}
	}
	return false
}

// headers returns h, with dead-lettering headers that describe the history.
func (p *deathHistory) headers(h amqpwire.Table, last death) amqpwire.Table {
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

// replace sets a header, and removes all other headers with the same name, because clients differ in which of them
// they read.
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
