package reprisetest

import (
	"errors"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// conn is the broker's end of a connection. It forwards each frame, records the consumed queues, and
// applies the faults.
//
//	client ── Read: publishes, acks ──► conn ──► broker
//	       ◄── Write: confirms, deliveries ──
type conn struct {
	net.Conn
	broker *Broker
	own    bool // the connection of the test's own client, which faults do not affect

	// Used by the reading goroutine.
	in       scanner
	pass     []byte // data that Read has not returned yet
	confirms map[uint16]bool
	doubling map[uint16]*content

	out scanner // used by the writing goroutine

	// Guarded by Broker.mu.
	vhost    string
	consumed map[place]bool // queues with a consumer of this connection, now or earlier
	clean    bool           // the client closed the connection
	closed   bool
	cut      bool // by a fault
}

// errCut is the error that the broker gets from a connection that a fault has cut.
var errCut = errors.New("cut by a fault of the test")

// wrap returns a connection that the package can observe and cut.
func (b *Broker) wrap(server net.Conn, own bool) *conn {
	c := &conn{
		Conn: server, broker: b, own: own,
		confirms: make(map[uint16]bool), doubling: make(map[uint16]*content), consumed: make(map[place]bool),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c
}

// Close implements net.Conn.
func (c *conn) Close() error {
	b := c.broker
	b.mu.Lock()
	if !c.closed {
		c.closed = true
		delete(b.conns, c)
		if !c.clean {
			for q := range c.consumed {
				b.lost[q] = time.Now()
			}
		}
	}
	b.mu.Unlock()
	err := c.Conn.Close()
	b.notify()
	return err
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.pass) == 0 {
		if f := c.in.next(); f != nil {
			if c.pass = c.fromClient(f); c.pass == nil {
				return 0, c.sever()
			}
			continue
		}
		n, err := c.Conn.Read(p)
		c.in.feed(p[:n])
		if err != nil && n == 0 {
			return 0, c.reason(err)
		}
	}
	n := copy(p, c.pass)
	c.pass = c.pass[n:]
	return n, nil
}

// Write implements net.Conn. The broker writes whole frames.
func (c *conn) Write(p []byte) (int, error) {
	c.out.feed(p)
	var pass []byte
	notifies := false
	for f := c.out.next(); f != nil; f = c.out.next() {
		notifies = notifies || f.kind() != amqpwire.FrameHeartbeat
		if c.own || !isConfirm(f) || !c.broker.occurs(confirmLost) {
			pass = append(pass, f...)
			continue
		}
		_, _ = c.Conn.Write(pass) // deliver the earlier frames
		return 0, c.sever()
	}
	if len(pass) == 0 {
		return len(p), nil
	}
	_, err := c.Conn.Write(pass)
	err = c.reason(err)
	if notifies {
		c.broker.notify()
	}
	return len(p), err
}

// sever cuts the connection, and returns the error for the broker.
func (c *conn) sever() error {
	c.note(func() { c.cut = true })
	_ = c.Close()
	return errCut
}

// reason returns errCut if a fault has cut the connection, otherwise err.
func (c *conn) reason(err error) error {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if err != nil && c.cut {
		return errCut
	}
	return err
}

// listener accepts connections that the package can observe and cut.
type listener struct {
	net.Listener
	broker *Broker
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.broker.refusedUntil().IsZero() {
			if err == nil {
				c = l.broker.wrap(c, false)
			}
			return c, err
		}
		_ = c.Close()
	}
}
