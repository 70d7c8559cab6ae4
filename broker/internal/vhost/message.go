package vhost

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

const persistent = 2 // value of delivery-mode

// evaluated contains the properties that the broker evaluates. The broker checks only the syntax of the other properties.
const evaluated = amqpwire.PropHeaders | amqpwire.PropDeliveryMode | amqpwire.PropPriority |
	amqpwire.PropReplyTo | amqpwire.PropExpiration | amqpwire.PropUserID

// Published is a message from a client.
type Published struct {
	Exchange, RoutingKey string
	Properties           []byte // in wire format
	Body                 []byte
	User                 string // user of the publishing connection
	Impersonator         bool   // the property user-id may contain another user
	ReplyQueue           string // queue for direct replies; may be empty
}

// NewMessage validates a published message and evaluates its properties.
func NewMessage(c Published) (*queue.Message, error) {
	var p amqpwire.Properties
	err := p.Parse(c.Properties, evaluated)
	if err != nil {
		return nil, exception.New(exception.FrameError, "%v", err)
	}
	m := &queue.Message{
		Exchange: c.Exchange, RoutingKey: c.RoutingKey,
		Properties: c.Properties, Headers: p.Headers, Body: c.Body,
		TTL: queue.NoTTL, Persistent: p.DeliveryMode == persistent,
		HasPriority: p.Has(amqpwire.PropPriority), Priority: p.Priority,
	}
	if p.Has(amqpwire.PropUserID) && p.UserID != c.User && !c.Impersonator {
		return nil, exception.New(exception.PreconditionFailed,
			"user_id property set to '%s' but authenticated user was '%s'", p.UserID, c.User)
	}
	changed := false
	if p.Has(amqpwire.PropExpiration) {
		if m.TTL, err = expiration(p.Expiration); err != nil {
			return nil, err
		}
		plain := strconv.FormatInt(m.TTL.Milliseconds(), 10)
		changed, p.Expiration = plain != p.Expiration, plain // like RabbitMQ, which stores a number
	}
	if m.CC, err = routingKeys(p.Headers, "CC"); err != nil {
		return nil, err
	}
	if m.BCC, err = routingKeys(p.Headers, "BCC"); err != nil {
		return nil, err
	}
	replies, err := SetReplyTo(&p, c.ReplyQueue)
	if err != nil {
		return nil, err
	}
	if _, blind := p.Headers.Get("BCC"); blind {
		p.Headers = p.Headers.Delete("BCC")
		m.Headers = p.Headers
		changed = true
	}
	if changed || replies {
		if m.Properties, err = editProperties(c.Properties, p); err != nil {
			return nil, exception.New(exception.InternalError, "%v", err)
		}
	}
	return m, nil
}

// editProperties returns the encoded properties with replaced headers, reply-to and expiration. It does not add
// properties that are absent.
func editProperties(properties []byte, edited amqpwire.Properties) ([]byte, error) {
	p, err := amqpwire.ParseProperties(properties)
	if err != nil {
		return nil, err
	}
	p.Headers, p.ReplyTo, p.Expiration = edited.Headers, edited.ReplyTo, edited.Expiration
	return p.Append(nil)
}

// expiration parses the expiration property, a decimal number of milliseconds.
func expiration(text string) (time.Duration, error) {
	end := len(text) - len(strings.TrimLeft(strings.TrimLeft(text, "+-"), "0123456789"))
	number, rest := text[:end], text[end:]
	ms, err := strconv.ParseInt(number, 10, 64) // if the number is too large, ms is the maximum of int64
	problem := ""
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		problem = "no_integer"
	case rest != "":
		problem = fmt.Sprintf("{leftover_string,%q}", rest)
	case ms < 0:
		problem = fmt.Sprintf("{value_negative,%d}", ms)
	case ms > MaxExpiry:
		problem = fmt.Sprintf("{value_too_large,%s}", number)
	}
	if problem != "" {
		return 0, exception.New(exception.PreconditionFailed, "invalid expiration '%s': %s", text, problem)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// routingKeys returns the keys of a CC or BCC header (https://www.rabbitmq.com/docs/sender-selected).
func routingKeys(headers amqpwire.Table, name string) ([]string, error) {
	value, found := headers.Get(name)
	if !found {
		return nil, nil
	}
	array, ok := value.(amqpwire.Array)
	if !ok {
		return nil, exception.New(exception.PreconditionFailed,
			"invalid message: {unacceptable_type_in_header,%q,%s}", name, amqpwire.TypeName(value))
	}
	var keys []string
	for _, v := range array {
		if key, ok := v.(string); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
