package amqpconn

import (
	"cmp"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/topology"
)

// Delivery modes.
const (
	transient  = 1
	persistent = 2
)

// properties returns the properties on the wire.
func (m *Message) properties(mode uint8) amqpwire.Properties {
	headers := unpacked(wireTable(m.Headers))
	p := amqpwire.Properties{
		Flags: amqpwire.PropDeliveryMode | m.zeros()&settable, DeliveryMode: mode, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, Headers: headers,
		Priority: m.Priority, CorrelationID: m.CorrelationID, ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageID: m.MessageID,
		Type: m.Type, UserID: m.UserID, AppID: m.AppID,
	}
	for _, t := range m.texts() {
		if *t.value != "" {
			p.Flags |= t.flag
		}
	}
	if len(headers) > 0 {
		p.Flags |= amqpwire.PropHeaders
	}
	if m.Priority > 0 {
		p.Flags |= amqpwire.PropPriority
	}
	if !m.Timestamp.IsZero() {
		p.Flags |= amqpwire.PropTimestamp
		p.Timestamp = uint64(m.Timestamp.Unix())
	}
	return p
}

// unpacked replaces the packed headers, except for those that copies must not have.
func unpacked(t amqpwire.Table) amqpwire.Table {
	packed, _ := t.Get(HeaderUnreadable)
	b, _ := packed.([]byte)
	if b == nil {
		return t
	}
	all, ok := splitTable(b)
	if !ok {
		return t
	}
	t = t.Delete(HeaderUnreadable)
	for _, h := range all {
		if !isRouting(h.name) {
			t = append(t, amqpwire.Field{Name: h.name, Value: amqpwire.Encoded(h.value)})
		}
	}
	return t
}

// settable are the properties that Message.Zero can contain.
const settable = amqpwire.PropContentType | amqpwire.PropContentEncoding | amqpwire.PropCorrelationID | amqpwire.PropReplyTo | amqpwire.PropExpiration |
	amqpwire.PropMessageID | amqpwire.PropType | amqpwire.PropUserID | amqpwire.PropAppID | amqpwire.PropHeaders | amqpwire.PropPriority

// received returns the message of a content. Its headers are packed as those for amqp091-go, so that a message has the same
// headers with both clients: see HeaderUnreadable.
func received(c *amqpclient.Content, maxFrame int) (Delivery, error) {
	var p amqpwire.Properties
	const all = settable | amqpwire.PropDeliveryMode | amqpwire.PropTimestamp
	err := p.Parse(c.Properties, all)
	var moved []byte
	if err != nil || amqpwire.FrameOverhead+contentHead+len(c.Properties) > maxFrame || !readableTable(p.Headers, 0) {
		var packed content
		if !packed.split(append(make([]byte, contentHead), c.Properties...)) {
			return Delivery{}, cmp.Or(err, errProperties)
		}
		packed.pack()
		if packed.size() > maxFrame {
			moved = packed.move(maxFrame)
		}
		if err := p.Parse(packed.append(nil)[contentHead:], all); err != nil {
			return Delivery{}, err
		}
	}
	d := Delivery{Message: Message{
		ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, CorrelationID: p.CorrelationID, ReplyTo: p.ReplyTo, Expiration: p.Expiration,
		MessageID: p.MessageID, Type: p.Type, UserID: p.UserID, AppID: p.AppID, Priority: p.Priority, Body: c.Body,
	}}
	if p.Has(amqpwire.PropHeaders) {
		d.Headers = messageTable(p.Headers)
		if moved != nil {
			d.Headers[HeaderUnreadable] = moved
		}
	}
	if p.Has(amqpwire.PropTimestamp) {
		d.Timestamp = time.Unix(int64(p.Timestamp), 0)
	}
	d.Zero = p.Flags & settable
	d.Zero = d.zeros()
	return d, nil
}

// errProperties is the fault of properties with flags that AMQP 0-9-1 does not have.
var errProperties = errors.New("unknown properties")

// readableTable reports whether amqp091-go can decode a table at the given depth, and none of its fields has the name of packed
// headers.
func readableTable(t amqpwire.Table, depth int) bool {
	for _, f := range t {
		if f.Name == HeaderUnreadable && depth == 0 || !readableValue(f.Value, depth) {
			return false
		}
	}
	return len(t) <= clientEntries
}

func readableValue(v any, depth int) bool {
	switch v := v.(type) {
	case amqpwire.Table:
		return depth < clientDepth && readableTable(v, depth+1)
	case amqpwire.Array:
		if depth == clientDepth || len(v) > clientEntries {
			return false
		}
		for _, e := range v {
			if !readableValue(e, depth+1) {
				return false
			}
		}
	}
	return true
}

// messageTable converts a table from the wire. The last of several fields with the same name counts.
func messageTable(t amqpwire.Table) topology.Table {
	out := make(topology.Table, len(t))
	for _, f := range t {
		out[f.Name] = messageValue(f.Value)
	}
	return out
}

func messageValue(v any) any {
	switch v := v.(type) {
	case amqpwire.Table:
		return messageTable(v)
	case amqpwire.Array:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = messageValue(e)
		}
		return out
	case amqpwire.Timestamp:
		return time.Unix(int64(v), 0)
	case amqpwire.Decimal:
		return Decimal{Scale: v.Scale, Value: int32(v.Value)}
	}
	return v
}

// wireTable converts a table of EncodeTable for the wire.
func wireTable[T ~map[string]any](t T) amqpwire.Table {
	if len(t) == 0 {
		return nil
	}
	out := make(amqpwire.Table, 0, len(t))
	for name, v := range t {
		out = append(out, amqpwire.Field{Name: name, Value: wireValue(v)})
	}
	return out
}

func wireValue(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return wireTable(v)
	case topology.Table:
		return wireTable(v)
	case []any:
		out := make(amqpwire.Array, len(v))
		for i, e := range v {
			out[i] = wireValue(e)
		}
		return out
	case time.Time:
		return amqpwire.Timestamp(v.Unix())
	case Decimal:
		return amqpwire.Decimal{Scale: v.Scale, Value: uint32(v.Value)}
	}
	return v
}
