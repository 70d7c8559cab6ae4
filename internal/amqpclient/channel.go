package amqpclient

import (
	"fmt"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Handler receives what the broker sends on a channel, in order. The goroutine that reads calls its methods, so they must not
// block. The methods and contents are valid only during the call, except for the body.
type Handler interface {
	// Deliver returns an error if it cannot read the content, which closes the connection.
	Deliver(m *amqpwire.BasicDeliver, c *Content) error

	Return(m *amqpwire.BasicReturn, c *Content)

	// Confirm is called for basic.ack and basic.nack.
	Confirm(tag uint64, multiple, nack bool)

	// Cancel is called if the broker cancels a consumer.
	Cancel(tag string)

	// End is called last, when the channel has closed.
	End()
}

// Channel is an open channel. Its methods are safe for concurrent use.
type Channel struct {
	conn    *Conn
	id      uint16
	handler Handler
	calls   calls

	sending sync.Mutex // held while frames are written; the goroutine that reads must not wait for it
	scratch []byte     // used with sending
	closing bool       // nothing more is written; used with sending

	err   *Error // nil: closed by this side
	ended chan struct{}

	in incoming
}

// incoming is the content that the broker is sending. Only the goroutine that reads uses it.
type incoming struct {
	deliver amqpwire.BasicDeliver // reused
	method  amqpwire.Method       // nil: none
	begun   bool                  // the header has arrived
	left    uint64                // bytes of the body that have not arrived
	content Content
}

// Open opens a channel.
func (c *Conn) Open(h Handler) (*Channel, error) {
	ch := &Channel{conn: c, handler: h, ended: make(chan struct{})}
	if err := c.register(ch); err != nil {
		return nil, err
	}
	if _, err := ch.Call(&amqpwire.ChannelOpen{}); err != nil {
		return nil, err
	}
	return ch, nil
}

func (c *Conn) register(ch *Channel) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := len(c.free); {
	case c.closing:
		return ErrClosed
	case n > 0:
		ch.id, c.free = c.free[n-1], c.free[:n-1]
	case c.next == c.ChannelMax:
		return ErrChannelMax
	default:
		c.next++
		ch.id = c.next
	}
	c.channels[ch.id] = ch
	return nil
}

func (c *Conn) release(ch *Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.channels[ch.id] == ch {
		delete(c.channels, ch.id)
		c.free = append(c.free, ch.id)
	}
}

// Ended returns a channel that is closed when the channel has closed, before Handler.End is called.
func (ch *Channel) Ended() <-chan struct{} { return ch.ended }

// Err returns the reason why the channel has closed. It is valid after Ended is closed. It is nil if this side has closed the
// channel or the connection.
func (ch *Channel) Err() *Error { return ch.err }

// IsClosed reports whether nothing can be written to the channel.
func (ch *Channel) IsClosed() bool {
	select {
	case <-ch.ended:
		return true
	default:
		return false
	}
}

// Call sends a request and waits for the answer of the broker. The error is an *Error, ErrClosed or ErrEncode.
func (ch *Channel) Call(m amqpwire.Method) (amqpwire.Method, error) { return ch.Take(m, nil) }

// Take is like Call. It passes the answer to taken before the broker's next frames are read. The content is nil if the answer
// has none.
func (ch *Channel) Take(m amqpwire.Method, taken func(amqpwire.Method, *Content)) (amqpwire.Method, error) {
	return ch.calls.take(m, ch.Send, taken)
}

// Send writes a method that has no answer.
func (ch *Channel) Send(m amqpwire.Method) error {
	ch.sending.Lock()
	defer ch.sending.Unlock()
	if ch.closing || ch.IsClosed() {
		return ErrClosed
	}
	return ch.conn.send(ch.id, m)
}

// Publish writes a message. Unless flush is set, the message can stay in the buffer of the connection until Conn.Flush. Before
// the message is written, Publish calls before, if it is set, and returns its error. After ErrClosed, at least the last frame
// was not written. After ErrEncode, nothing was written, and before was not called.
func (ch *Channel) Publish(m *amqpwire.BasicPublish, p *amqpwire.Properties, body []byte, flush bool, before func() error) error {
	ch.sending.Lock()
	defer ch.sending.Unlock()
	if ch.closing || ch.IsClosed() {
		return ErrClosed
	}
	method, err := amqpwire.AppendMethodFrame(ch.scratch[:0], ch.id, m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEncode, err)
	}
	all, err := p.Append(method)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEncode, err)
	}
	ch.scratch = all
	properties := all[len(method):]
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	w := ch.conn.writer
	first := body[:min(len(body), maxBuffered)]
	err = w.append(flush && len(first) == len(body), func(buf []byte) ([]byte, error) {
		buf = append(buf, method...)
		buf = amqpwire.AppendHeaderFrame(buf, ch.id, m.ID().Class(), uint64(len(body)), properties)
		return amqpwire.AppendBodyFrames(buf, ch.id, first, ch.conn.FrameMax), nil
	})
	for rest := body[len(first):]; err == nil && len(rest) > 0; {
		part := rest[:min(len(rest), maxBuffered)]
		rest = rest[len(part):]
		err = w.append(flush && len(rest) == 0, func(buf []byte) ([]byte, error) {
			return amqpwire.AppendBodyFrames(buf, ch.id, part, ch.conn.FrameMax), nil
		})
	}
	return ch.conn.written(err)
}

// Close closes the channel, and returns when it is closed. If an earlier request has no answer, it waits for that answer, because a
// broker answers the requests of a channel in order.
func (ch *Channel) Close() error {
	closes := func(m amqpwire.Method) error {
		ch.sending.Lock()
		defer ch.sending.Unlock()
		if ch.closing {
			return ErrClosed
		}
		ch.closing = true
		return ch.conn.send(ch.id, m)
	}
	_, err := ch.calls.take(&amqpwire.ChannelClose{ReplyCode: 200}, closes, func(amqpwire.Method, *Content) {
		ch.conn.release(ch)
		ch.end(nil)
	})
	return err
}

// end ends the channel. Only the goroutine that reads calls it.
func (ch *Channel) end(err *Error) {
	if ch.IsClosed() {
		return
	}
	ch.err = err
	close(ch.ended)
	if err != nil {
		ch.calls.end(err)
	} else {
		ch.calls.end(ErrClosed)
	}
	ch.handler.End()
}

// receive handles a frame. An error closes the connection.
func (ch *Channel) receive(f amqpwire.Frame) *Error {
	switch in := &ch.in; {
	case ch.IsClosed(): // the answer to channel.close is not written yet
		return nil
	case f.Type == amqpwire.FrameMethod && in.method == nil:
		return ch.method(f.Payload)
	case f.Type == amqpwire.FrameHeader && in.method != nil && !in.begun:
		h, err := amqpwire.ParseContentHeader(f.Payload)
		if err != nil {
			return malformed(err)
		}
		in.begun, in.left = true, h.BodySize
		in.content.Properties = append(in.content.Properties[:0], h.Properties...)
		in.content.Body = nil
		if h.BodySize > 0 {
			in.content.Body = make([]byte, 0, min(h.BodySize, maxFrame)) // an announced size alone must not allocate more
		}
	case f.Type == amqpwire.FrameBody && in.begun && uint64(len(f.Payload)) <= in.left:
		in.content.Body = append(in.content.Body, f.Payload...)
		in.left -= uint64(len(f.Payload))
	default:
		return unexpected("frame of type %d with %d bytes on channel %d", f.Type, len(f.Payload), ch.id)
	}
	if ch.in.begun && ch.in.left == 0 {
		return ch.complete()
	}
	return nil
}

// complete passes on a method with its content.
func (ch *Channel) complete() *Error {
	m := ch.in.method
	ch.in.method, ch.in.begun = nil, false
	switch m := m.(type) {
	case *amqpwire.BasicDeliver:
		if err := ch.handler.Deliver(m, &ch.in.content); err != nil {
			return malformed(err)
		}
	case *amqpwire.BasicReturn:
		ch.handler.Return(m, &ch.in.content)
	default:
		if !ch.calls.answer(m, &ch.in.content) {
			return unexpected("method %v on channel %d", m.ID(), ch.id)
		}
	}
	ch.in.content.Body = nil
	return nil
}

// method handles a method frame.
func (ch *Channel) method(payload []byte) *Error {
	id, err := amqpwire.PeekMethodID(payload)
	var m amqpwire.Method
	if id == amqpwire.IDBasicDeliver {
		m = &ch.in.deliver
		err = amqpwire.Parse(payload[4:], m)
	} else if err == nil {
		m, err = amqpwire.ParseMethod(payload)
	}
	if err != nil {
		return malformed(err)
	}
	if id.HasContent() {
		ch.in.method = m
		return nil
	}
	switch m := m.(type) {
	case *amqpwire.BasicAck:
		ch.handler.Confirm(m.DeliveryTag, m.Multiple, false)
	case *amqpwire.BasicNack:
		ch.handler.Confirm(m.DeliveryTag, m.Multiple, true)
	case *amqpwire.BasicCancel:
		ch.handler.Cancel(m.ConsumerTag)
		if !m.NoWait {
			go ch.reply(&amqpwire.BasicCancelOk{ConsumerTag: m.ConsumerTag})
		}
	case *amqpwire.ChannelFlow:
		go ch.reply(&amqpwire.ChannelFlowOk{Active: m.Active})
	case *amqpwire.ChannelClose:
		reason := closedBy((*amqpwire.ConnectionClose)(m))
		reason.Channel = true
		ch.end(reason)
		go ch.confirmClose()
	default:
		if !ch.calls.answer(m, nil) && id != amqpwire.IDChannelCloseOk { // both sides have closed a former channel with this number
			return unexpected("method %v on channel %d", id, ch.id)
		}
	}
	return nil
}

// reply writes an answer, on another goroutine than that which reads, because a write can wait for a broker that does not read.
func (ch *Channel) reply(m amqpwire.Method) { _ = ch.Send(m) } // if the channel has closed, the broker expects no answer

// confirmClose confirms that the broker has closed the channel, after the frames that are being written. Afterwards, the number
// of the channel can be used again.
func (ch *Channel) confirmClose() {
	ch.sending.Lock()
	defer ch.sending.Unlock()
	ch.closing = true
	_ = ch.conn.send(ch.id, &amqpwire.ChannelCloseOk{})
	ch.conn.release(ch)
}
