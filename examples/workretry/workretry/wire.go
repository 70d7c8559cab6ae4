package workretry

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// A wire contains all connections of one program to the broker. It can cut a
// connection immediately before a chosen frame.
type wire struct {
	dial dialFunc

	mu    sync.Mutex
	conns map[*wireConn]struct{}
	armed *fault
	dead  bool
	died  chan struct{} // closed by the method kill
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// A fault specifies a frame, and the failure to inject immediately before this frame.
type fault struct {
	frame
	kills    bool // cuts all connections of the program, not only the connection of the frame
	injected chan struct{}
}

// A frame identifies a method frame by its connection, its direction and its AMQP
// method.
type frame struct {
	on        role
	direction direction
	method    method
}

type role int

// A client publishes on one connection and consumes on another connection.
const (
	unknown role = iota
	publishing
	consuming
)

type direction int

const (
	toBroker direction = iota
	toClient
)

// method contains the class ID and the method ID of an AMQP 0-9-1 method, encoded as in a frame.
type method uint32

const (
	basicQosOk    method = 60<<16 | 11
	basicConsume  method = 60<<16 | 20
	basicPublish  method = 60<<16 | 40
	basicAck      method = 60<<16 | 80
	basicReject   method = 60<<16 | 90
	confirmSelect method = 85<<16 | 10
)

var errCut = errors.New("connection was cut on purpose")

func newWire(dial dialFunc) *wire {
	return &wire{dial: dial, conns: make(map[*wireConn]struct{}), died: make(chan struct{})}
}

// Dial opens a connection. It implements reprise.Config.Dial, and fails after kill.
func (w *wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: nc, wire: w, fromBroker: bufio.NewReader(nc), greeting: protocolHeader}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.Join(errCut, nc.Close())
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// set arms a fault, which replaces the previous fault.
func (w *wire) set(s *fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = s
}

// kill simulates a killed process. It closes all connections, and Dial fails afterwards. The caller holds w.mu.
func (w *wire) kill() {
	if w.dead {
		return
	}
	w.dead = true
	for c := range w.conns {
		_ = c.Conn.Close()
	}
	close(w.died)
}

// pass reports whether a frame may pass. If the frame matches the armed fault, pass cuts the connection or kills the
// wire.
func (w *wire) pass(c *wireConn, d direction, m method) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m {
	case confirmSelect:
		c.role = publishing
	case basicConsume:
		c.role = consuming
	}
	s := w.armed
	if s == nil || s.frame != (frame{c.role, d, m}) {
		return !w.dead
	}
	w.armed = nil
	if s.kills {
		w.kill()
	} else {
		_ = c.Conn.Close()
	}
	close(s.injected)
	return false
}

// wireConn is a connection that forwards only complete frames, which have this form:
//
//	type(1) channel(2) size(4) payload(size) end(1)
type wireConn struct {
	net.Conn
	wire *wire
	role role // guarded by wire.mu

	sent     []byte // incomplete frame from the client
	greeting int    // remaining bytes of the protocol header, which is not a frame

	fromBroker *bufio.Reader
	received   []byte // unread bytes of the last frame from the broker
}

const (
	protocolHeader = len("AMQP\x00\x00\x09\x01")
	frameHead      = 7
	frameMethod    = 1
	maxFrame       = 1 << 20 // the default limit of RabbitMQ is 128 KiB
)

// Write implements net.Conn.
func (c *wireConn) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	crossed := 0
	for {
		n := min(c.greeting, len(c.sent)-crossed)
		if c.greeting -= n; n == 0 {
			n = frameSize(c.sent[crossed:])
			if n == 0 {
				break
			}
			if !c.wire.pass(c, toBroker, methodOf(c.sent[crossed:])) {
				return 0, errCut
			}
		}
		if _, err := c.Conn.Write(c.sent[crossed : crossed+n]); err != nil {
			return 0, err
		}
		crossed += n
	}
	c.sent = append(c.sent[:0], c.sent[crossed:]...)
	return len(p), nil
}

// Read implements net.Conn.
func (c *wireConn) Read(p []byte) (int, error) {
	if len(c.received) == 0 {
		f, err := c.next()
		if err != nil {
			return 0, err
		}
		c.received = f
	}
	n := copy(p, c.received)
	c.received = c.received[n:]
	return n, nil
}

// next returns the next frame from the broker.
func (c *wireConn) next() ([]byte, error) {
	head, err := c.fromBroker.Peek(frameHead)
	if err != nil {
		return nil, err
	}
	payload := binary.BigEndian.Uint32(head[3:])
	if payload > maxFrame {
		return nil, errors.New("received data is not plain AMQP (use an amqp:// URL)")
	}
	f := make([]byte, frameHead+int(payload)+1)
	if _, err := io.ReadFull(c.fromBroker, f); err != nil {
		return nil, err
	}
	if !c.wire.pass(c, toClient, methodOf(f)) {
		return nil, errCut
	}
	return f, nil
}

// Close implements net.Conn.
func (c *wireConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

// frameSize returns the size of the first frame in b, or 0 if the frame is incomplete.
func frameSize(b []byte) int {
	if len(b) < frameHead {
		return 0
	}
	n := frameHead + int(binary.BigEndian.Uint32(b[3:])) + 1
	if n > len(b) {
		return 0
	}
	return n
}

// methodOf returns the method of a complete frame, or 0 if it is not a method frame.
func methodOf(f []byte) method {
	if f[0] != frameMethod || len(f) < frameHead+4+1 {
		return 0
	}
	return method(binary.BigEndian.Uint32(f[frameHead:]))
}
