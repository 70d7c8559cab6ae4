package amqpclient

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// maxFrame is the maximum size of a received frame. RabbitMQ sends a content header that is larger than negotiated if it has
// added headers to the message.
const maxFrame = 16 << 20

// silentBeats is the number of heartbeat intervals without data after which the peer is considered dead.
const silentBeats = 3

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct {
	// Negotiated with the broker; they must not be changed.
	ChannelMax uint16
	FrameMax   uint32
	Heartbeat  time.Duration // 0: none
	Server     amqpwire.Table

	socket  net.Conn
	reader  *amqpwire.Reader
	writer  *writer
	blocked func(active bool, reason string)

	calls calls // on channel 0

	mu       sync.Mutex
	channels map[uint16]*Channel
	next     uint16 // no channel from here on was open
	free     []uint16
	closing  bool   // err is final
	err      *Error // nil: closed by this side

	ended chan struct{} // closed when no further calls of handlers follow
}

// Closing reports whether the connection is closed or about to close.
func (c *Conn) Closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// Ended returns a channel that is closed when the connection and all its channels have closed, and the handlers have returned.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err returns the reason why the connection has closed. It is valid after Ended is closed. It is nil if this side has closed
// the connection.
func (c *Conn) Err() *Error { return c.err }

// Flush writes the messages that Publish has buffered.
func (c *Conn) Flush() {
	if err := c.writer.flush(); err != nil {
		c.fail(broken(err))
	}
}

// UpdateSecret passes a new password to the broker.
func (c *Conn) UpdateSecret(secret, reason string) error {
	_, err := c.calls.call(&amqpwire.ConnectionUpdateSecret{NewSecret: secret, Reason: reason}, func(m amqpwire.Method) error { return c.send(0, m) })
	return err
}

// Close closes the connection, and returns when it is closed. It waits for the broker's answer until the deadline.
func (c *Conn) Close(deadline time.Time) {
	if c.begin(nil) {
		late := time.AfterFunc(time.Until(deadline), c.end)
		defer late.Stop()
		_ = c.send(0, &amqpwire.ConnectionClose{ReplyCode: 200, ReplyText: "goodbye"})
	}
	<-c.ended
}

// send writes a method. A broker closes the connection for a method that exceeds a frame, so send refuses it.
func (c *Conn) send(channel uint16, m amqpwire.Method) error {
	err := c.writer.append(true, func(buf []byte) ([]byte, error) {
		out, err := amqpwire.AppendMethodFrame(buf, channel, m)
		if size := len(out) - len(buf); err == nil && c.FrameMax > 0 && size > int(c.FrameMax) { // 0: during the handshake
			err = fmt.Errorf("method %v must fit into a frame of %d bytes: got %d", m.ID(), c.FrameMax, size)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEncode, err)
		}
		return out, nil
	})
	return c.written(err)
}

// written closes the connection if the socket, and not the encoding of a frame, is the cause of an error.
func (c *Conn) written(err error) error {
	if err != nil && c.writer.failed() {
		c.fail(broken(err))
	}
	return err
}

// fail closes the connection because of an error. If the broker has violated the protocol, it receives the reason.
func (c *Conn) fail(err *Error) {
	if c.begin(err) && !err.Lost {
		_ = c.socket.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.send(0, &amqpwire.ConnectionClose{ReplyCode: uint16(err.Code), ReplyText: shortText(err.Text)})
	}
	c.end()
}

// begin begins to close the connection, and reports whether the caller is the first to do so. The reason of others has no
// effect.
func (c *Conn) begin(reason *Error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.closing, c.err = true, reason
	return true
}

// end closes the socket. The goroutine that reads then closes everything else.
func (c *Conn) end() {
	_ = c.socket.Close()
	c.writer.close(ErrClosed)
}

// read reads frames until the connection closes.
func (c *Conn) read() {
	c.begin(c.readAll())
	c.end()
	c.mu.Lock()
	all := c.channels
	c.channels = nil
	c.mu.Unlock()
	for _, ch := range all {
		ch.end(c.err)
	}
	c.calls.end(ErrClosed)
	close(c.ended)
}

func (c *Conn) readAll() *Error {
	for {
		f, err := c.reader.ReadFrame()
		if _, invalid := errors.AsType[*amqpwire.FrameError](err); invalid {
			return malformed(err)
		}
		if err != nil {
			return broken(err)
		}
		switch {
		case f.Type == amqpwire.FrameHeartbeat:
		case f.Channel == 0:
			if done, err := c.control(f); done {
				return nil
			} else if err != nil {
				c.fail(err)
				return err
			}
		default:
			if err := c.dispatch(f); err != nil {
				c.fail(err)
				return err
			}
		}
	}
}

// dispatch passes a frame to its channel.
func (c *Conn) dispatch(f amqpwire.Frame) *Error {
	c.mu.Lock()
	ch := c.channels[f.Channel]
	c.mu.Unlock()
	switch {
	case ch != nil:
		return ch.receive(f)
	case isCloseOk(f): // both sides have closed the channel
		return nil
	}
	return unexpected("frame for channel %d, which is not open", f.Channel)
}

func isCloseOk(f amqpwire.Frame) bool {
	id, err := amqpwire.PeekMethodID(f.Payload)
	return f.Type == amqpwire.FrameMethod && err == nil && id == amqpwire.IDChannelCloseOk
}

// control handles a method of the connection. done means that the connection has closed.
func (c *Conn) control(f amqpwire.Frame) (done bool, err *Error) {
	m, parseErr := amqpwire.ParseMethod(f.Payload)
	if f.Type != amqpwire.FrameMethod || parseErr != nil {
		return false, unexpected("frame of type %d on channel 0: %v", f.Type, parseErr)
	}
	switch m := m.(type) {
	case *amqpwire.ConnectionClose:
		c.begin(closedBy(m)) // before an error of the following write
		_ = c.socket.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.send(0, &amqpwire.ConnectionCloseOk{})
		return true, nil
	case *amqpwire.ConnectionCloseOk:
		return true, nil
	case *amqpwire.ConnectionBlocked:
		c.blocked(true, strings.ToValidUTF8(m.Reason, "\uFFFD"))
	case *amqpwire.ConnectionUnblocked:
		c.blocked(false, "")
	default:
		if !c.calls.answer(m, nil) {
			return false, unexpected("method %v on channel 0", m.ID())
		}
	}
	return false, nil
}

// beat sends a heartbeat whenever nothing was written for half an interval, so that no interval passes without data.
func (c *Conn) beat() {
	ticker := time.NewTicker(c.Heartbeat / 2)
	defer ticker.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-ticker.C:
		}
		if c.writer.idle() {
			_ = c.written(c.writer.append(true, func(buf []byte) ([]byte, error) { return amqpwire.AppendHeartbeatFrame(buf), nil }))
		}
	}
}

// timed is a socket whose reads fail if the peer is silent.
type timed struct {
	net.Conn
	silence time.Duration
}

func (t *timed) Read(p []byte) (int, error) {
	if t.silence > 0 {
		if err := t.SetReadDeadline(time.Now().Add(t.silence)); err != nil {
			return 0, err
		}
	}
	return t.Conn.Read(p)
}

// shortText returns the beginning of a text that fits into a short string.
func shortText(s string) string { return s[:min(len(s), math.MaxUint8)] }
