package session

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// content is a message that arrives in parts: the method, a header frame, and body frames up to the announced size.
type content struct {
	method     *amqpwire.BasicPublish // nil: no content expected
	header     bool                   // the header frame was received
	size       uint64                 // announced size of the body
	properties int                    // number of property bytes in message
	message    []byte                 // properties and body, in a single allocation
	oversize   bool                   // the body is too large, and is discarded
	discarded  uint64                 // number of discarded body bytes
	check      uint64                 // number of checks by [contents] when the last part arrived

	scratch []byte // reusable buffer for properties until the first body frame
}

// scratchKeep is the maximum size of the properties buffer that a channel keeps.
const scratchKeep = 1 << 10

func (c *content) expected() bool { return c.method != nil }

// missing returns the number of body bytes that have not arrived.
func (c *content) missing() uint64 { return c.size - c.discarded - uint64(len(c.message)-c.properties) }

// maxBodySize is the maximum size that a content header can announce, as in RabbitMQ.
const maxBodySize = 512 << 20

func (ch *channel) basicPublish(m *amqpwire.BasicPublish) error {
	if m.Immediate {
		return exception.New(exception.NotImplemented, "immediate=true")
	}
	ch.content.method = m
	ch.content.check = ch.s.contents.checks
	ch.s.contents.begin(ch.s)
	ch.s.contentBegun = true
	return nil
}

const classBasic = 60

func (ch *channel) contentFrame(f amqpwire.Frame) error {
	c := &ch.content
	take := ch.contentBody
	if !c.header {
		take = ch.contentHeader
	}
	if err := take(f); err != nil {
		return err
	}
	if c.missing() > 0 {
		c.check = ch.s.contents.checks
		ch.contentMemory.Set(int64(max(0, cap(c.message)-scratchKeep, cap(c.scratch)-scratchKeep)))
		return nil
	}
	if c.oversize {
		size := c.size
		ch.dropContent()
		return exception.New(exception.PreconditionFailed,
			"message size %d is larger than configured max size %d", size, ch.s.config.MaxMessageSize)
	}
	if c.size == 0 {
		c.message = slices.Clone(c.message)
	}
	method, n, message := c.method, c.properties, c.message
	ch.dropContent()
	return ch.publish(method, message[:n:n], message[n:])
}

// reservedFlags are the flags of properties that RabbitMQ ignores: bit 0 announces further flags, which AMQP does not define.
const reservedFlags = 0b11

func (ch *channel) contentHeader(f amqpwire.Frame) error {
	h, err := amqpwire.ParseContentHeader(f.Payload)
	switch {
	case f.Type != amqpwire.FrameHeader || err != nil:
		return exception.New(exception.UnexpectedFrame,
			"expected content header for class %d, got non content header frame instead", classBasic)
	case h.ClassID != classBasic:
		return exception.New(exception.UnexpectedFrame,
			"expected content header for class %d, got one for class %d instead", classBasic, h.ClassID)
	case h.BodySize > maxBodySize:
		return exception.New(exception.FrameError,
			"content body size %d exceeds maximum allowed size %d", h.BodySize, maxBodySize)
	}
	c := &ch.content
	c.header, c.size = true, h.BodySize
	// Like RabbitMQ, read an oversize body to its end, because some clients do not read the error while they write.
	if c.oversize = h.BodySize > ch.s.config.MaxMessageSize; c.oversize {
		return nil
	}
	c.properties = len(h.Properties)
	c.scratch = append(c.scratch[:0], h.Properties...)
	c.scratch[1] &^= reservedFlags
	c.message = slices.Clip(c.scratch)
	return nil
}

func (ch *channel) contentBody(f amqpwire.Frame) error {
	c := &ch.content
	switch {
	case f.Type != amqpwire.FrameBody:
		return exception.New(exception.UnexpectedFrame, "expected content body, got non content body frame instead")
	case uint64(len(f.Payload)) > c.missing():
		return exception.New(exception.FrameError, "content body frame exceeds remaining content size")
	}
	c.add(f.Payload)
	return nil
}

// add appends a part of the body. It also allocates space for further parts, but only in proportion to the bytes received,
// because a client can announce a false size.
func (c *content) add(part []byte) {
	if c.oversize {
		c.discarded += uint64(len(part))
		return
	}
	if cap(c.message)-len(c.message) < len(part) {
		room := min(c.missing(), uint64(max(16*len(part), 3*len(c.message))))
		c.message = append(make([]byte, 0, len(c.message)+int(room)), c.message...)
	}
	c.message = append(c.message, part...)
}

// dropContent drops the message that the client is publishing.
func (ch *channel) dropContent() {
	c := &ch.content
	ch.contentMemory.Set(0)
	if cap(c.scratch) > scratchKeep {
		c.scratch = nil
	}
	*c = content{scratch: c.scratch}
}
