package session

import (
	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// publish handles a complete message.
func (ch *channel) publish(method *amqpwire.BasicPublish, properties, body []byte) error {
	if err := ch.s.mayExchange(access.Write, method.Exchange); err != nil {
		return err
	}
	m, err := vhost.NewMessage(vhost.Published{
		Exchange: method.Exchange, RoutingKey: method.RoutingKey, Properties: properties, Body: body,
		User: ch.s.user, Impersonator: ch.s.impersonator, ReplyQueue: ch.replyQueue(),
	})
	if err != nil {
		return err
	}
	if err := ch.s.mayTopics(access.Write, m.Exchange, m.RoutingKey, m.CC, m.BCC); err != nil {
		return err
	}
	ch.counter.Add(stats.Publish, 1)
	if ch.unconfirmed.on {
		ch.counter.Add(stats.Confirmed, 1)
	}
	p := pendingMessage{message: m, mandatory: method.Mandatory}
	if p.queues, err = ch.route(m); err != nil {
		return err
	}
	if ch.tx != nil {
		ch.tx.publish(ch, p)
		return nil
	}
	accepted, kept := ch.deliver(p)
	if !m.Persistent {
		ch.s.pace(p.queues, len(m.Body))
	}
	if ch.unconfirmed.on {
		ch.s.confirms.add(ch, accepted, kept)
	}
	return nil
}

// deliver enqueues a message in its queues. If no queue matches, it returns a mandatory message to the client, and
// drops any other message. It reports whether all queues accepted the message, and returns the ticket of the commit
// that makes the message durable.
func (ch *channel) deliver(p pendingMessage) (accepted bool, kept store.Ticket) {
	m := p.message
	if len(p.queues) > 0 {
		return vhost.Deliver(m, p.queues)
	}
	if !p.mandatory {
		ch.counter.Add(stats.Dropped, 1)
		return true, 0
	}
	ch.counter.Add(stats.Returned, 1)
	ch.s.out.writeContent(func(b []byte) []byte {
		return ch.appendContent(b, &amqpwire.BasicReturn{
			ReplyCode: uint16(exception.NoRoute), ReplyText: exception.NoRoute.String(),
			Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		}, m.Properties, len(m.Body))
	}, ch.body(m.Body))
	return true, 0
}

// replyQueue returns the name of the queue for direct replies to this channel, or an empty string.
func (ch *channel) replyQueue() string {
	if ch.replies == nil {
		return ""
	}
	return ch.replies.Name()
}

// appendContent encodes a method and the header of the message that follows it.
func (ch *channel) appendContent(b []byte, m amqpwire.Method, properties []byte, size int) []byte {
	framed, err := amqpwire.AppendMethodFrame(b, ch.id, m)
	if err != nil {
		// Cannot happen: all names arrived as short strings, or their length was checked.
		ch.s.log.Error("cannot send message", "method", m.ID(), "error", err)
		return b
	}
	return amqpwire.AppendHeaderFrame(framed, ch.id, classBasic, uint64(size), properties)
}

func (ch *channel) body(b []byte) body { return body{b, ch.id, ch.s.frameMax} }
