package archive

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Dial opens a connection to the broker.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Publish is a message that a process has written to its connection. The broker may not have read it.
type Publish struct {
	Exchange, Key string
	Properties    amqpwire.Properties
	Body          []byte
}

// header returns the value of a string header, or "".
func (p Publish) header(name string) string {
	for _, f := range p.Properties.Headers {
		if f.Name == name {
			text, _ := f.Value.(string)
			return text
		}
	}
	return ""
}

// network contains the connections of one process. They are closed when the process exits.
type network struct {
	dial      Dial
	published func(Publish)

	mu    sync.Mutex
	dead  bool
	conns map[*wire]bool
}

var errNoProcess = errors.New("process exited")

func (n *network) Dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	n.mu.Lock()
	dead := n.dead
	n.mu.Unlock()
	if dead {
		return nil, errNoProcess
	}
	c, err := n.dial(ctx, protocol, address)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c, network: n, publishing: make(map[uint16]*content)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		_ = c.Close()
		return nil, errNoProcess
	}
	n.conns[w] = true
	return w, nil
}

// cut closes all connections without an AMQP close.
func (n *network) cut() (cut int) {
	n.mu.Lock()
	conns := n.conns
	n.conns = make(map[*wire]bool)
	n.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
	return len(conns)
}

// kill closes all connections permanently.
func (n *network) kill() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	n.cut()
}

// wire is a connection that reports the published messages.
type wire struct {
	net.Conn
	network *network

	mu         sync.Mutex
	data       []byte
	begun      bool
	publishing map[uint16]*content // by channel
}

// content is a message whose last frame has not been written.
type content struct {
	Publish
	left uint64
}

// Write implements [net.Conn].
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.data = append(w.data, p...)
	published := w.read()
	w.mu.Unlock()
	n, err := w.Conn.Write(p)
	for _, p := range published { // report the messages even if the write was incomplete
		w.network.published(p)
	}
	return n, err
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	w.network.mu.Lock()
	delete(w.network.conns, w)
	w.network.mu.Unlock()
	return w.Conn.Close()
}

// read returns the messages whose last frame has been written.
func (w *wire) read() (published []Publish) {
	if !w.begun && len(w.data) >= len(amqpwire.ProtocolHeader) {
		w.begun = true
		w.data = w.data[len(amqpwire.ProtocolHeader):]
	}
	for len(w.data) >= 7 {
		size := int(uint32(w.data[3])<<24|uint32(w.data[4])<<16|uint32(w.data[5])<<8|uint32(w.data[6])) + amqpwire.FrameOverhead
		if len(w.data) < size {
			break
		}
		if p, ok := w.frame(w.data[:size]); ok {
			published = append(published, p)
		}
		w.data = w.data[size:]
	}
	w.data = append([]byte(nil), w.data...)
	return published
}

func (w *wire) frame(f []byte) (p Publish, whole bool) {
	channel, payload := uint16(f[1])<<8|uint16(f[2]), f[7:len(f)-1]
	c := w.publishing[channel]
	switch kind := amqpwire.FrameType(f[0]); {
	case kind == amqpwire.FrameMethod:
		m, err := amqpwire.ParseMethod(payload)
		if publish, ok := m.(*amqpwire.BasicPublish); err == nil && ok {
			w.publishing[channel] = &content{Publish: Publish{Exchange: publish.Exchange, Key: publish.RoutingKey}}
		}
		return p, false
	case c == nil:
		return p, false
	case kind == amqpwire.FrameHeader:
		h, err := amqpwire.ParseContentHeader(payload)
		if err != nil {
			return p, false
		}
		c.left = h.BodySize
		c.Properties, _ = amqpwire.ParseProperties(h.Properties)
	case kind == amqpwire.FrameBody:
		c.Body = append(c.Body, payload...)
		c.left -= min(c.left, uint64(len(payload)))
	default:
		return p, false
	}
	if c.left > 0 {
		return p, false
	}
	delete(w.publishing, channel)
	return c.Publish, true
}
