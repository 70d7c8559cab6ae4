package session

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/access"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/queue"
	"github.com/reprisemq/reprise/internal/vhost"
)

const persistent = 2 // delivery-mode

// content is a message in parts: first the method, then a header frame, then bodies until the announced size is there.
type content struct {
	method     *amqpwire.BasicPublish // nil: no content is expected
	properties []byte                 // nil: the header has not come
	size       uint64
	body       []byte
}

func (c *content) expected() bool { return c.method != nil }

func (ch *channel) basicPublish(m *amqpwire.BasicPublish) error {
	if m.Immediate {
		return exception.New(exception.NotImplemented, "immediate=true")
	}
	ch.content = content{method: m}
	return nil
}

const classBasic = 60

func (ch *channel) contentFrame(f amqpwire.Frame) error {
	c := &ch.content
	if c.properties == nil {
		h, err := amqpwire.ParseContentHeader(f.Payload)
		switch {
		case f.Type != amqpwire.FrameHeader || err != nil:
			return exception.New(exception.UnexpectedFrame,
				"expected content header for class %d, got non content header frame instead", classBasic)
		case h.ClassID != classBasic:
			return exception.New(exception.UnexpectedFrame,
				"expected content header for class %d, got one for class %d instead", classBasic, h.ClassID)
		case h.BodySize > ch.s.config.MaxMessageSize:
			return exception.New(exception.PreconditionFailed,
				"message size %d is larger than configured max size %d", h.BodySize, ch.s.config.MaxMessageSize)
		}
		c.properties, c.size = slices.Clone(h.Properties), h.BodySize
	} else {
		if f.Type != amqpwire.FrameBody {
			return exception.New(exception.UnexpectedFrame, "expected content body, got non content body frame instead")
		}
		if uint64(len(c.body)+len(f.Payload)) > c.size {
			return exception.New(exception.FrameError, "content body frame exceeds remaining content size")
		}
		if c.body == nil && uint64(len(f.Payload)) < c.size {
			// More is to come: room for it at once, but not for more than a liar could make cheap.
			c.body = make([]byte, 0, min(c.size, uint64(4*len(f.Payload))))
		}
		c.body = append(c.body, f.Payload...)
	}
	if uint64(len(c.body)) < c.size {
		return nil
	}
	published := *c
	ch.content = content{}
	return ch.publish(published)
}

func (ch *channel) publish(c content) error {
	if err := ch.s.mayExchange(access.Write, c.method.Exchange); err != nil {
		return err
	}
	m, err := ch.message(c)
	if err != nil {
		return err
	}
	ch.s.wrote = true
	p := pending{message: m, mandatory: c.method.Mandatory}
	if ch.tx != nil {
		if err := ch.s.vhost.CheckPublish(m.Exchange); err != nil {
			return err
		}
		ch.tx.published = append(ch.tx.published, p)
		return nil
	}
	accepted, err := ch.route(p)
	if err == nil && ch.confirms.on {
		ch.confirm(accepted)
	}
	return err
}

// route gives a message to the queues, or back to the client if it must not have none.
func (ch *channel) route(p pending) (accepted bool, err error) {
	m := p.message
	routed, accepted, err := ch.s.vhost.Publish(m)
	if err == nil && routed == 0 && p.mandatory {
		ch.s.out.write(func(b []byte) []byte {
			return appendContent(b, ch, &amqpwire.BasicReturn{
				ReplyCode: uint16(exception.NoRoute), ReplyText: exception.NoRoute.String(),
				Exchange: m.Exchange, RoutingKey: m.RoutingKey,
			}, m.Properties, m.Body)
		})
	}
	return accepted, err
}

// message checks what was published and takes from its properties what the broker goes by.
func (ch *channel) message(c content) (*queue.Message, error) {
	p, err := amqpwire.ParseProperties(c.properties)
	if err != nil {
		return nil, exception.New(exception.FrameError, "%v", err)
	}
	m := &queue.Message{
		Exchange: c.method.Exchange, RoutingKey: c.method.RoutingKey,
		Properties: c.properties, Headers: p.Headers, Body: c.body,
		TTL: queue.NoTTL, Persistent: p.DeliveryMode == persistent,
		HasPriority: p.Has(amqpwire.PropPriority), Priority: p.Priority,
	}
	if p.Has(amqpwire.PropUserID) && p.UserID != ch.s.user {
		return nil, exception.New(exception.PreconditionFailed,
			"user_id property set to '%s' but authenticated user was '%s'", p.UserID, ch.s.user)
	}
	if p.Has(amqpwire.PropExpiration) {
		if m.TTL, err = expiration(p.Expiration); err != nil {
			return nil, err
		}
	}
	if m.CC, err = routingKeys(p.Headers, "CC"); err != nil {
		return nil, err
	}
	if m.BCC, err = routingKeys(p.Headers, "BCC"); err != nil {
		return nil, err
	}
	changed, err := vhost.SetReplyTo(&p, ch.replyQueue())
	if err != nil {
		return nil, err
	}
	if _, blind := p.Headers.Get("BCC"); blind {
		p.Headers = p.Headers.Delete("BCC")
		m.Headers = p.Headers
		changed = true
	}
	if changed {
		if m.Properties, err = p.Append(nil); err != nil {
			return nil, exception.New(exception.InternalError, "%v", err)
		}
	}
	return m, nil
}

// replyQueue is where direct replies to this channel go; empty: nowhere.
func (ch *channel) replyQueue() string {
	if ch.replies == nil {
		return ""
	}
	return ch.replies.Name()
}

// expiration reads the property of that name: milliseconds in decimal.
func expiration(text string) (time.Duration, error) {
	end := len(text) - len(strings.TrimLeft(strings.TrimLeft(text, "+-"), "0123456789"))
	number, rest := text[:end], text[end:]
	ms, err := strconv.ParseInt(number, 10, 64) // a number too large comes as the largest there is
	problem := ""
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		problem = "no_integer"
	case rest != "":
		problem = fmt.Sprintf("{leftover_string,%q}", rest)
	case ms < 0:
		problem = fmt.Sprintf("{value_negative,%d}", ms)
	}
	if problem != "" {
		return 0, exception.New(exception.PreconditionFailed, "invalid expiration '%s': %s", text, problem)
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, nil
}

// routingKeys reads a CC or BCC header (https://www.rabbitmq.com/docs/sender-selected).
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

// appendContent encodes a method that carries a message.
func appendContent(b []byte, ch *channel, m amqpwire.Method, properties, body []byte) []byte {
	framed, err := amqpwire.AppendMethodFrame(b, ch.id, m)
	if err != nil {
		// Every name in it came over the wire as a short string or was checked as one.
		ch.s.log.Error("message not sent", "method", m.ID(), "error", err)
		return b
	}
	framed = amqpwire.AppendHeaderFrame(framed, ch.id, classBasic, uint64(len(body)), properties)
	return amqpwire.AppendBodyFrames(framed, ch.id, body, ch.s.frameMax)
}
