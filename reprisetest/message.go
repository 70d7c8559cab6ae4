package reprisetest

import (
	"bytes"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// decode converts messages of a queue to the form that a handler receives.
func decode(waiting []testhook.Message, in string, marks topology.Marks) []*reprise.Delivery {
	all := make([]*reprise.Delivery, 0, len(waiting))
	for _, w := range waiting {
		p, err := amqpwire.ParseProperties(w.Properties)
		if err != nil {
			continue // the broker does not accept such a message
		}
		all = append(all, message(w, p, in, marks))
	}
	return all
}

func message(w testhook.Message, p amqpwire.Properties, in string, marks topology.Marks) *reprise.Delivery {
	headers := table(p.Headers)
	d := topology.Delivery{
		Queue: in, Exchange: w.Exchange, RoutingKey: w.RoutingKey,
		Redelivered: w.Redelivered, Headers: headers,
	}
	history := marks.Read(d)
	m := &reprise.Delivery{
		Message: reprise.Message{
			Body:            bytes.Clone(w.Body),
			Headers:         visible(headers, marks),
			ContentType:     p.ContentType,
			ContentEncoding: p.ContentEncoding,
			CorrelationID:   p.CorrelationID,
			ReplyTo:         p.ReplyTo,
			MessageID:       p.MessageID,
			Type:            p.Type,
			AppID:           p.AppID,
			Priority:        p.Priority,
			Zero:            zeros(&p),
			UserID:          p.UserID,
			Expiration:      amqpconn.ParseExpiration(p.Expiration),
		},
		Queue:         in,
		Attempt:       history.Attempts,
		Errors:        history.Errors,
		ErrorsDropped: history.ErrorsDropped,
		FirstFailed:   history.FirstFailed,
		Redelivered:   w.Redelivered,
	}
	if p.Has(amqpwire.PropTimestamp) {
		m.Timestamp = time.Unix(int64(p.Timestamp), 0)
	}
	if history.Queue != "" {
		m.Queue = amqpvalue.WorkQueue(history.Queue)
	}
	m.Exchange, m.RoutingKey = history.OriginAt(d)
	// A copy carries these properties in headers instead.
	if user, ok := headers[reprise.HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	if text, ok := headers[reprise.HeaderExpiration].(string); ok {
		m.Expiration = amqpconn.ParseExpiration(text)
	}
	return m
}

// zeros returns the properties that are present with an empty value, or with priority 0.
func zeros(p *amqpwire.Properties) reprise.PropertySet {
	set := p.Flags
	for flag, filled := range map[amqpwire.PropertyFlags]bool{
		amqpwire.PropContentType: p.ContentType != "", amqpwire.PropContentEncoding: p.ContentEncoding != "",
		amqpwire.PropHeaders: len(p.Headers) > 0, amqpwire.PropPriority: p.Priority > 0,
		amqpwire.PropCorrelationID: p.CorrelationID != "", amqpwire.PropReplyTo: p.ReplyTo != "",
		amqpwire.PropMessageID: p.MessageID != "", amqpwire.PropType: p.Type != "", amqpwire.PropAppID: p.AppID != "",
		amqpwire.PropDeliveryMode: true, amqpwire.PropTimestamp: true, amqpwire.PropUserID: true,
		amqpwire.PropExpiration: true, amqpwire.PropClusterID: true,
	} {
		if filled {
			set &^= flag
		}
	}
	return reprise.PropertySet(set)
}

// visible returns the publisher's headers, including a CC that a worker has moved to HeaderCC.
func visible(headers topology.Table, marks topology.Marks) map[string]any {
	out := make(map[string]any, len(headers))
	for name, v := range headers {
		switch {
		case amqpvalue.IsBrokerHeader(name):
		case name == reprise.HeaderCC, name == reprise.HeaderUserID, name == reprise.HeaderExpiration, name == reprise.HeaderCrashes, name == reprise.HeaderRedelivered, name == reprise.HeaderLease, name == reprise.HeaderCheckpoint:
		case strings.HasPrefix(name, topology.HeaderLevel), marks.Owns(name):
		default:
			out[name] = v
		}
	}
	if cc, stashed := headers[reprise.HeaderCC]; stashed {
		out["CC"] = cc
	}
	return out
}

// table converts headers of the broker to headers of the worker library.
func table(t amqpwire.Table) topology.Table {
	out := make(topology.Table, len(t))
	for name, v := range t.All() {
		if _, twice := out[name]; !twice {
			out[name] = value(v)
		}
	}
	return out
}

func value(v any) any {
	switch v := v.(type) {
	case amqpwire.Table:
		return table(v)
	case amqpwire.Array:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = value(e)
		}
		return out
	case amqpwire.Timestamp:
		return time.Unix(int64(v), 0)
	case amqpwire.Decimal:
		return amqp.Decimal{Scale: v.Scale, Value: int32(v.Value)}
	}
	return v
}
