package management

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// properties contains the properties of a message that is published through the API.
type properties amqpwire.Properties

// property describes a message property by its JSON name, its flag, and a function that returns a pointer to its value.
type property struct {
	name string
	flag amqpwire.PropertyFlags
	of   func(*properties) any
}

var allProperties = []property{
	{"content_type", amqpwire.PropContentType, func(p *properties) any { return &p.ContentType }},
	{"content_encoding", amqpwire.PropContentEncoding, func(p *properties) any { return &p.ContentEncoding }},
	{"headers", amqpwire.PropHeaders, func(p *properties) any { return (*arguments)(&p.Headers) }},
	{"delivery_mode", amqpwire.PropDeliveryMode, func(p *properties) any { return &p.DeliveryMode }},
	{"priority", amqpwire.PropPriority, func(p *properties) any { return &p.Priority }},
	{"correlation_id", amqpwire.PropCorrelationID, func(p *properties) any { return &p.CorrelationID }},
	{"reply_to", amqpwire.PropReplyTo, func(p *properties) any { return &p.ReplyTo }},
	{"expiration", amqpwire.PropExpiration, func(p *properties) any { return &p.Expiration }},
	{"message_id", amqpwire.PropMessageID, func(p *properties) any { return &p.MessageID }},
	{"timestamp", amqpwire.PropTimestamp, func(p *properties) any { return &p.Timestamp }},
	{"type", amqpwire.PropType, func(p *properties) any { return &p.Type }},
	{"user_id", amqpwire.PropUserID, func(p *properties) any { return &p.UserID }},
	{"app_id", amqpwire.PropAppID, func(p *properties) any { return &p.AppID }},
	{"cluster_id", amqpwire.PropClusterID, func(p *properties) any { return &p.ClusterID }},
}

// UnmarshalJSON implements [json.Unmarshaler]. RabbitMQ represents a message without properties as an empty list.
func (p *properties) UnmarshalJSON(b []byte) error {
	if string(b) == "[]" {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(b, &given); err != nil {
		return err
	}
	for _, property := range allProperties {
		value, found := given[property.name]
		if !found {
			continue
		}
		to := property.of(p)
		if err := json.Unmarshal(value, to); err != nil {
			return wrongProperty(property.name, err)
		}
		if string(value) == "null" { // which Unmarshal ignores
			return wrongProperty(property.name, &json.UnmarshalTypeError{Type: reflect.TypeOf(to).Elem()})
		}
		p.Flags |= property.flag
	}
	return nil
}

// wrongProperty returns RabbitMQ's error for an invalid property. The error contains the name of the property.
func wrongProperty(name string, err error) error {
	t, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	kind := jsonName(t.Type)
	if kind == "integer" {
		kind = "int"
	}
	return badRequest([]string{"not_" + kind, name})
}

// describeProperties converts the encoded properties of a message to fields.
func describeProperties(encoded []byte) any {
	parsed, _ := amqpwire.ParseProperties(encoded) // cannot fail: the properties were decoded when the message was published
	if parsed.Flags == 0 {
		return []fields{}
	}
	all := fields{}
	for _, property := range allProperties {
		if parsed.Has(property.flag) {
			all[property.name] = property.of((*properties)(&parsed))
		}
	}
	return all
}
