package management

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// properties are a message's, as JSON. What is not there is nil.
type properties struct {
	ContentType     *string    `json:"content_type,omitempty"`
	ContentEncoding *string    `json:"content_encoding,omitempty"`
	Headers         *arguments `json:"headers,omitempty"`
	DeliveryMode    *uint8     `json:"delivery_mode,omitempty"`
	Priority        *uint8     `json:"priority,omitempty"`
	CorrelationID   *string    `json:"correlation_id,omitempty"`
	ReplyTo         *string    `json:"reply_to,omitempty"`
	Expiration      *string    `json:"expiration,omitempty"`
	MessageID       *string    `json:"message_id,omitempty"`
	Timestamp       *uint64    `json:"timestamp,omitempty"`
	Type            *string    `json:"type,omitempty"`
	UserID          *string    `json:"user_id,omitempty"`
	AppID           *string    `json:"app_id,omitempty"`
	ClusterID       *string    `json:"cluster_id,omitempty"`
}

// UnmarshalJSON implements [json.Unmarshaler]. An empty list is what RabbitMQ shows, and takes, for no properties.
func (p *properties) UnmarshalJSON(b []byte) error {
	if string(b) == "[]" {
		return nil
	}
	type plain properties
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return wrongProperty(err)
	}
	return nil
}

// wrongProperty says what is wrong as RabbitMQ does: by the name of the property.
func wrongProperty(err error) error {
	t, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || t.Field == "" {
		return err
	}
	kind := jsonName(t.Type)
	if kind == "integer" {
		kind = "int"
	}
	return badRequest([]string{"not_" + kind, t.Field})
}

// MarshalJSON implements [json.Marshaler].
func (p properties) MarshalJSON() ([]byte, error) {
	if p == (properties{}) {
		return []byte("[]"), nil
	}
	type plain properties
	return json.Marshal(plain(p))
}

func (p *properties) encode() (encoded amqpwire.Properties) {
	text := func(flag amqpwire.PropertyFlags, from, to *string) {
		if from != nil {
			*to = *from
			encoded.Flags |= flag
		}
	}
	text(amqpwire.PropContentType, p.ContentType, &encoded.ContentType)
	text(amqpwire.PropContentEncoding, p.ContentEncoding, &encoded.ContentEncoding)
	text(amqpwire.PropCorrelationID, p.CorrelationID, &encoded.CorrelationID)
	text(amqpwire.PropReplyTo, p.ReplyTo, &encoded.ReplyTo)
	text(amqpwire.PropExpiration, p.Expiration, &encoded.Expiration)
	text(amqpwire.PropMessageID, p.MessageID, &encoded.MessageID)
	text(amqpwire.PropType, p.Type, &encoded.Type)
	text(amqpwire.PropUserID, p.UserID, &encoded.UserID)
	text(amqpwire.PropAppID, p.AppID, &encoded.AppID)
	text(amqpwire.PropClusterID, p.ClusterID, &encoded.ClusterID)
	if p.Headers != nil {
		encoded.Headers = amqpwire.Table(*p.Headers)
		encoded.Flags |= amqpwire.PropHeaders
	}
	if p.DeliveryMode != nil {
		encoded.DeliveryMode = *p.DeliveryMode
		encoded.Flags |= amqpwire.PropDeliveryMode
	}
	if p.Priority != nil {
		encoded.Priority = *p.Priority
		encoded.Flags |= amqpwire.PropPriority
	}
	if p.Timestamp != nil {
		encoded.Timestamp = *p.Timestamp
		encoded.Flags |= amqpwire.PropTimestamp
	}
	return encoded
}

func newProperties(encoded []byte) (properties, error) {
	w, err := amqpwire.ParseProperties(encoded)
	if err != nil {
		return properties{}, fmt.Errorf("a message's properties: %w", err)
	}
	headers := arguments(w.Headers)
	return properties{
		ContentType:     present(&w, amqpwire.PropContentType, &w.ContentType),
		ContentEncoding: present(&w, amqpwire.PropContentEncoding, &w.ContentEncoding),
		Headers:         present(&w, amqpwire.PropHeaders, &headers),
		DeliveryMode:    present(&w, amqpwire.PropDeliveryMode, &w.DeliveryMode),
		Priority:        present(&w, amqpwire.PropPriority, &w.Priority),
		CorrelationID:   present(&w, amqpwire.PropCorrelationID, &w.CorrelationID),
		ReplyTo:         present(&w, amqpwire.PropReplyTo, &w.ReplyTo),
		Expiration:      present(&w, amqpwire.PropExpiration, &w.Expiration),
		MessageID:       present(&w, amqpwire.PropMessageID, &w.MessageID),
		Timestamp:       present(&w, amqpwire.PropTimestamp, &w.Timestamp),
		Type:            present(&w, amqpwire.PropType, &w.Type),
		UserID:          present(&w, amqpwire.PropUserID, &w.UserID),
		AppID:           present(&w, amqpwire.PropAppID, &w.AppID),
		ClusterID:       present(&w, amqpwire.PropClusterID, &w.ClusterID),
	}, nil
}

func present[T any](p *amqpwire.Properties, flag amqpwire.PropertyFlags, value *T) *T {
	if !p.Has(flag) {
		return nil
	}
	return value
}
