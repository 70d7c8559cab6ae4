package session

import (
	"slices"

	"github.com/reprisemq/reprise/internal/access"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/exception"
	"github.com/reprisemq/reprise/internal/queue"
	"github.com/reprisemq/reprise/internal/stats"
	"github.com/reprisemq/reprise/internal/vhost"
)

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
	ch.s.begun = true
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
		ch.s.config.Memory.Add(int64(len(f.Payload))) // until a queue has it
	}
	if uint64(len(c.body)) < c.size {
		return nil
	}
	published := *c
	ch.dropContent()
	return ch.publish(published)
}

// dropContent forgets the message that is being published.
func (ch *channel) dropContent() {
	ch.s.config.Memory.Add(-int64(len(ch.content.body)))
	ch.content = content{}
}

func (ch *channel) publish(c content) error {
	if err := ch.s.mayExchange(access.Write, c.method.Exchange); err != nil {
		return err
	}
	m, err := ch.message(c)
	if err != nil {
		return err
	}
	ch.counter.Add(stats.Publish, 1)
	if ch.confirms.on {
		ch.counter.Add(stats.Confirmed, 1)
	}
	p := pending{message: m, mandatory: c.method.Mandatory}
	var buffer [4]*vhost.Queue
	if p.queues, err = ch.s.vhost.Route(buffer[:0], m); err != nil {
		return err
	}
	if ch.tx != nil {
		ch.tx.publish(ch, p)
		return nil
	}
	accepted := ch.deliver(p)
	if ch.confirms.on {
		ch.confirm(accepted)
	}
	return nil
}

// deliver gives a message to its queues, or back to the client if it must not have none.
func (ch *channel) deliver(p pending) (accepted bool) {
	m := p.message
	if len(p.queues) > 0 {
		accepted, _ = vhost.Deliver(m, p.queues)
		return accepted
	}
	if !p.mandatory {
		ch.counter.Add(stats.Dropped, 1)
		return true
	}
	ch.counter.Add(stats.Returned, 1)
	ch.s.out.write(func(b []byte) []byte {
		return appendContent(b, ch, &amqpwire.BasicReturn{
			ReplyCode: uint16(exception.NoRoute), ReplyText: exception.NoRoute.String(),
			Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		}, m.Properties, m.Body)
	})
	return true
}

// message checks what was published and takes from its properties what the broker goes by.
func (ch *channel) message(c content) (*queue.Message, error) {
	return vhost.NewMessage(vhost.Published{
		Exchange: c.method.Exchange, RoutingKey: c.method.RoutingKey, Properties: c.properties, Body: c.body,
		User: ch.s.user, ReplyQueue: ch.replyQueue(),
	})
}

// replyQueue is where direct replies to this channel go; empty: nowhere.
func (ch *channel) replyQueue() string {
	if ch.replies == nil {
		return ""
	}
	return ch.replies.Name()
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
