package reprisetest

import (
	"slices"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// isConfirm reports whether a frame of the broker is a confirm. The broker sends basic.ack only for publishes.
func isConfirm(f frame) bool {
	id := f.method()
	return id == amqpwire.IDBasicAck || id == amqpwire.IDBasicNack
}

// fromClient returns the bytes that replace a frame from the client, or nil to cut the connection.
func (c *conn) fromClient(f frame) []byte {
	if c.in.opaque || f.kind() == amqpwire.FrameHeartbeat {
		return f
	}
	defer c.broker.notify()
	switch f.method() {
	case amqpwire.IDConnectionOpen:
		var m amqpwire.ConnectionOpen
		if amqpwire.Parse(f.arguments(), &m) == nil {
			c.note(func() { c.vhost = m.VirtualHost })
		}
	case amqpwire.IDConnectionClose:
		c.note(func() { c.clean = true })
	case amqpwire.IDBasicConsume:
		var m amqpwire.BasicConsume
		if amqpwire.Parse(f.arguments(), &m) == nil {
			c.note(func() {
				q := place{c.vhost, m.Queue}
				c.consumed[q] = true
				delete(c.broker.lost, q)
			})
		}
	case amqpwire.IDConfirmSelect:
		c.confirms[f.channel()] = true
	case amqpwire.IDChannelClose, amqpwire.IDChannelCloseOk:
		delete(c.confirms, f.channel())
		delete(c.doubling, f.channel())
	case amqpwire.IDBasicAck:
		if c.broker.occurs(ackLost) { // the test's own client does not acknowledge messages
			return nil
		}
	case amqpwire.IDBasicPublish:
		if !c.own {
			return c.publish(f)
		}
	case 0:
		if d := c.doubling[f.channel()]; d != nil && d.add(f) {
			delete(c.doubling, f.channel())
			c.publishAgain(d)
		}
	}
	return f
}

func (f frame) arguments() []byte { return f.payload()[4:] }

func (c *conn) note(change func()) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	change()
}

// publish applies faults to a new message.
func (c *conn) publish(f frame) []byte {
	b := c.broker
	var m amqpwire.BasicPublish
	switch {
	case amqpwire.Parse(f.arguments(), &m) != nil:
		return f
	case b.occurs(publishLost):
		return nil
	case c.confirms[f.channel()] && b.occurs(publishNacked):
		// The broker itself refuses the message, because this queue is full.
		m.Exchange, m.RoutingKey = "", b.full(c.vhost)
		changed, err := amqpwire.AppendMethodFrame(nil, f.channel(), &m)
		if err != nil {
			return f
		}
		return changed
	case b.occurs(publishDoubled):
		c.doubling[f.channel()] = &content{exchange: m.Exchange, key: m.RoutingKey}
	}
	return f
}

// content is a message to duplicate.
type content struct {
	exchange, key string
	properties    []byte
	body          []byte
	left          uint64
}

// add adds a frame that follows basic.publish, and reports whether the message is complete.
func (d *content) add(f frame) (whole bool) {
	switch f.kind() {
	case amqpwire.FrameHeader:
		h, err := amqpwire.ParseContentHeader(f.payload())
		if err != nil {
			return false
		}
		d.properties, d.left = slices.Clone(h.Properties), h.BodySize
	case amqpwire.FrameBody:
		d.body = append(d.body, f.payload()...)
		d.left -= min(d.left, uint64(len(f.payload())))
	default:
		return false
	}
	return d.left == 0
}

// publishAgain publishes a second copy of a message. It ignores errors, because the broker reports them for the
// original.
func (c *conn) publishAgain(d *content) {
	c.broker.inside.Publish(c.vhost, d.exchange, d.key, d.properties, d.body)
}
