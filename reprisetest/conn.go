package reprisetest

import (
	"errors"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// conn is the broker's end of a connection. It carries frame by frame, sees what
// is consumed from, and is where faults strike.
//
//	client ── Read: publishes, acks ──► conn ──► broker
//	       ◄── Write: confirms, deliveries ──
type conn struct {
	net.Conn
	broker *Broker
	own    bool // the test's own hands: no fault strikes it

	// Of the goroutine that reads.
	in       scanner
	pass     []byte // what Read has not returned yet
	confirms map[uint16]bool
	doubling map[uint16]*content

	out scanner // of the goroutine that writes

	// Guarded by the broker's lock.
	vhost    string
	consumed map[place]bool // the queues it has consumed from
	inOrder  bool           // it is closed in order
	closed   bool
	cut      bool // by a fault
}

// errCut is what the broker sees of a connection that a fault has cut.
var errCut = errors.New("cut by a fault of the test")

// wrap makes an end of a connection one that can be looked into.
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
		if !c.inOrder {
			for q := range c.consumed {
				b.lost[q] = time.Now()
			}
		}
	}
	b.mu.Unlock()
	err := c.Conn.Close()
	b.stir()
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
	stirs := false
	for f := c.out.next(); f != nil; f = c.out.next() {
		stirs = stirs || f.kind() != amqpwire.FrameHeartbeat
		if c.own || !isConfirm(f) || !c.broker.strikes(confirmLost) {
			pass = append(pass, f...)
			continue
		}
		_, _ = c.Conn.Write(pass) // what comes before it arrives
		return 0, c.sever()
	}
	if len(pass) == 0 {
		return len(p), nil
	}
	_, err := c.Conn.Write(pass)
	err = c.reason(err)
	if stirs {
		c.broker.stir()
	}
	return len(p), err
}

// sever cuts the connection, and returns what the broker is to see of that.
func (c *conn) sever() error {
	c.note(func() { c.cut = true })
	_ = c.Close()
	return errCut
}

// reason is err, or that it was a fault.
func (c *conn) reason(err error) error {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	if err != nil && c.cut {
		return errCut
	}
	return err
}

// listener is one whose connections can be looked into.
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
