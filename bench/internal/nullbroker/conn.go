package nullbroker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/reprisemq/reprise/bench/internal/wire"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

const (
	classBasic = 60
	frameMax   = 131072
)

// conn is a client connection. Except for out, its fields belong to the goroutine that reads from the connection.
type conn struct {
	server *Server
	net    net.Conn
	r      *amqpwire.Reader
	out    *outbox

	publishing map[uint16]*publishState
	last       *publishState // result of the last lookup in publishing

	// Encoded deliveries for one consumer.
	batch   []byte
	batchTo *conn
	partial bool // the last delivery in batch is incomplete
}

// publishState is the state of a channel on which the client publishes.
type publishState struct {
	channel  uint16
	confirms bool
	tag      uint64 // number of the last message on the channel, from 1
	due      uint64 // if not 0, messages up to this number must be confirmed
	to       *consumer
	expected amqpwire.FrameType
	left     uint64
	lastKey  []byte
	queue    *queue
}

func (c *conn) serve() (err error) {
	if c.r, err = wire.NewReader(c.net); err != nil {
		return err
	}
	if err := c.handshake(); err != nil {
		return err
	}
	for {
		if !c.r.Ready() {
			c.flush()
		}
		f, err := c.r.ReadFrame()
		if err != nil {
			return err
		}
		if closed, err := c.frame(f); closed || err != nil {
			return err
		}
	}
}

func (c *conn) handshake() error {
	if _, err := c.r.ReadProtocolHeader(); err != nil {
		return err
	}
	c.send(0, &amqpwire.ConnectionStart{VersionMinor: 9, Mechanisms: "PLAIN", Locales: "en_US"})
	if _, err := c.r.ReadFrame(); err != nil { // start-ok; all users are accepted
		return err
	}
	c.send(0, &amqpwire.ConnectionTune{ChannelMax: 2047, FrameMax: frameMax})
	_, err := c.r.ReadFrame()
	return err
}

func (c *conn) send(channel uint16, m amqpwire.Method) {
	b, err := amqpwire.AppendMethodFrame(nil, channel, m)
	if err == nil { // always true: names that were received fit into a frame
		c.out.write(b)
	}
}

func (c *conn) frame(f amqpwire.Frame) (closed bool, err error) {
	p := c.last
	if p == nil || p.channel != f.Channel {
		p = c.publishingOn(f.Channel)
		c.last = p
	}
	switch {
	case f.Type == amqpwire.FrameHeartbeat:
		return false, nil
	case f.Type != p.expected:
		return false, fmt.Errorf("frame must have type %d: got %d", p.expected, f.Type)
	case f.Type == amqpwire.FrameMethod:
		return c.method(p, f)
	case f.Type == amqpwire.FrameHeader:
		return false, c.header(p, f)
	}
	c.body(p, f)
	return false, nil
}

func (c *conn) publishingOn(channel uint16) *publishState {
	p := c.publishing[channel]
	if p == nil {
		p = &publishState{channel: channel, expected: amqpwire.FrameMethod}
		c.publishing[channel] = p
	}
	return p
}

func (c *conn) method(p *publishState, f amqpwire.Frame) (closed bool, err error) {
	switch id, _ := amqpwire.PeekMethodID(f.Payload); id {
	case amqpwire.IDBasicPublish:
		return false, c.publish(p, f.Payload[4:])
	case amqpwire.IDBasicAck, amqpwire.IDBasicNack, amqpwire.IDBasicReject:
		return false, nil
	}
	c.flush()
	m, err := amqpwire.ParseMethod(f.Payload)
	if err != nil {
		return false, err
	}
	if consume, ok := m.(*amqpwire.BasicConsume); ok {
		// The reply must precede the first delivery.
		c.send(f.Channel, &amqpwire.BasicConsumeOk{ConsumerTag: consume.ConsumerTag})
		c.server.queue([]byte(consume.Queue)).add(&consumer{
			conn: c, channel: f.Channel, tag: consume.ConsumerTag, queue: consume.Queue,
		})
		return false, nil
	}
	if answer := c.answer(f.Channel, m); answer != nil {
		c.send(f.Channel, answer)
	}
	return m.ID() == amqpwire.IDConnectionClose, nil
}

// publish begins a message. The arguments are the ticket, the exchange, the routing key and the flags.
func (c *conn) publish(p *publishState, arguments []byte) error {
	b := arguments
	if len(b) < 3 || len(b) < 4+int(b[2]) {
		return fmt.Errorf("basic.publish is truncated: got %d bytes", len(b))
	}
	b = b[3+b[2]:]
	if len(b) < 1+int(b[0]) {
		return fmt.Errorf("basic.publish is truncated: got %d bytes", len(arguments))
	}
	if key := b[1 : 1+b[0]]; p.queue == nil || string(key) != string(p.lastKey) {
		p.lastKey = append(p.lastKey[:0], key...)
		p.queue = c.server.queue(key)
	}
	if c.partial {
		return errors.New("message begins before the previous message is complete")
	}
	c.partial = true
	p.tag++
	var number uint64
	if p.to, number = p.queue.take(); p.to != nil {
		if p.to.conn != c.batchTo {
			c.flushBatch()
			c.batchTo = p.to.conn
		}
		c.batch = appendDeliver(c.batch, p.to, number)
	}
	p.expected = amqpwire.FrameHeader
	return nil
}

// appendDeliver appends a basic.deliver frame. It does not use the codec, which would allocate the method on the heap.
func appendDeliver(b []byte, to *consumer, number uint64) []byte {
	size := 4 + 1 + len(to.tag) + 8 + 1 + 1 + 1 + len(to.queue)
	b = append(b, byte(amqpwire.FrameMethod), byte(to.channel>>8), byte(to.channel))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, uint32(amqpwire.IDBasicDeliver))
	b = append(append(b, byte(len(to.tag))), to.tag...)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, 0, 0) // not redelivered; the default exchange
	b = append(append(b, byte(len(to.queue))), to.queue...)
	return append(b, amqpwire.FrameEnd)
}

func (c *conn) header(p *publishState, f amqpwire.Frame) error {
	h, err := amqpwire.ParseContentHeader(f.Payload)
	if err != nil {
		return err
	}
	if p.to != nil {
		c.batch = amqpwire.AppendHeaderFrame(c.batch, p.to.channel, classBasic, h.BodySize, h.Properties)
	}
	p.expected, p.left = amqpwire.FrameBody, h.BodySize
	if p.left == 0 {
		c.published(p)
	}
	return nil
}

func (c *conn) body(p *publishState, f amqpwire.Frame) {
	if p.to != nil {
		c.batch = amqpwire.AppendBodyFrames(c.batch, p.to.channel, f.Payload, frameMax)
	}
	p.left -= min(p.left, uint64(len(f.Payload)))
	if p.left == 0 {
		c.published(p)
	}
}

func (c *conn) published(p *publishState) {
	p.expected = amqpwire.FrameMethod
	p.due = p.tag
	c.partial = false
	if len(c.batch) > batchSize {
		c.flushBatch()
	}
}

// batchSize is the approximate number of bytes after which collected deliveries are written.
const batchSize = 1 << 16

// flush writes the collected deliveries and confirms. If the last delivery is incomplete, flush does nothing. The
// caller calls flush when the read buffer is empty.
func (c *conn) flush() {
	if c.partial {
		return
	}
	c.flushBatch()
	for _, p := range c.publishing {
		if p.confirms && p.due > 0 {
			c.send(p.channel, &amqpwire.BasicAck{DeliveryTag: p.due, Multiple: true})
			p.due = 0
		}
	}
}

func (c *conn) flushBatch() {
	if len(c.batch) > 0 {
		c.batchTo.out.write(c.batch)
		c.batch = c.batch[:0]
	}
}
