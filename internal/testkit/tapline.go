package testkit

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// tapLine is one connection through a Tap.
type tapLine struct {
	tap    *Tap
	name   string
	client net.Conn // the tap's end of the pipe to the client
	server net.Conn

	// These fields are guarded by tap.mu.
	dead      bool                // cut
	last      tapFrame            // the last frame that the server has received
	unsettled map[uint16][]uint64 // tags of unsettled deliveries, by channel

	answered chan struct{} // closed when the server has responded after the cut, or cannot respond
	answer   func()        // closes answered
}

func newTapLine(p *Tap, name string) *tapLine {
	answered := make(chan struct{})
	return &tapLine{
		tap: p, name: name, client: noConn{}, server: noConn{},
		unsettled: make(map[uint16][]uint64),
		answered:  answered, answer: sync.OnceFunc(func() { close(answered) }),
	}
}

// noConn replaces a connection that does not exist yet.
type noConn struct{ net.Conn }

// Close implements net.Conn.
func (noConn) Close() error { return nil }

// tapConn is the client's end of a connection through a tap.
type tapConn struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *tapConn) Close() error {
	c.free()
	return c.Conn.Close()
}

// free makes the name available for another connection.
func (l *tapLine) free() {
	l.tap.mu.Lock()
	defer l.tap.mu.Unlock()
	if l.tap.lines[l.name] == l {
		delete(l.tap.lines, l.name)
	}
}

func (l *tapLine) isDead() bool {
	l.tap.mu.Lock()
	defer l.tap.mu.Unlock()
	return l.dead
}

// inMessage reports whether the server has received only a part of a message.
func (l *tapLine) inMessage() bool {
	return l.last.Name == amqpwire.IDBasicPublish.String() || l.last.Name == amqpwire.IDBasicPublish.String()+headerSuffix
}

// record records a crossing frame, and returns the number of deliveries that it acknowledges.
func (l *tapLine) record(f tapFrame) (acked int) {
	if f.Direction == ToServer {
		l.last = f
	}
	tags := l.unsettled[f.channel]
	switch m := f.method.(type) {
	case *amqpwire.BasicDeliver:
		tags = append(tags, m.DeliveryTag)
	case *amqpwire.BasicAck:
		if f.Direction == ToServer { // from the client; the server sends confirms
			tags, acked = settle(tags, m.DeliveryTag, m.Multiple)
		}
	case *amqpwire.BasicNack:
		tags, _ = settle(tags, m.DeliveryTag, m.Multiple)
	case *amqpwire.BasicReject:
		tags, _ = settle(tags, m.DeliveryTag, false)
	}
	l.unsettled[f.channel] = tags
	return acked
}

// settle returns the remaining tags, and the number of settled tags.
func settle(tags []uint64, tag uint64, multiple bool) (left []uint64, settled int) {
	for _, t := range tags {
		if t == tag || multiple && t < tag {
			settled++
		} else {
			left = append(left, t)
		}
	}
	return left, settled
}

// waitProcessed returns when the server has processed all frames of the line. An ack has no response, and a server may
// ignore an ack that it reads just before the connection is closed. Therefore, if the last frame is an ack,
// waitProcessed sends a request and waits for its response. Any later frame from the server counts as the response.
func (l *tapLine) waitProcessed() {
	l.tap.mu.Lock()
	last := l.last
	l.tap.mu.Unlock()
	if last.Name != amqpwire.IDBasicAck.String() {
		return
	}
	ask, err := amqpwire.AppendMethodFrame(nil, last.channel, &amqpwire.BasicQos{PrefetchCount: 1})
	if err != nil {
		return
	}
	if _, err := l.server.Write(ask); err == nil {
		<-l.answered
	}
}

// closeWrite closes the direction to the server. It closes only one half of a socket, because closing a socket with unread
// bytes would reset the connection, and the server might lose data that it has not read.
func (l *tapLine) closeWrite() {
	half, ok := l.server.(interface{ CloseWrite() error })
	if !ok {
		l.server.Close()
		return
	}
	half.CloseWrite()
	l.server.SetReadDeadline(time.Now().Add(2 * time.Second))
}

// forward forwards frames in one direction until EOF or an error.
func (l *tapLine) forward(d Direction) {
	src, dst := l.client, l.server
	if d == ToClient {
		src, dst = dst, src
	}
	l.copy(d, src, dst)
	dead := l.isDead()
	switch {
	case d == ToClient:
		l.answer()
		l.server.Close()
		if !dead {
			l.client.Close()
		}
	case dead:
		l.client.Close() // the client has noticed the cut
	default:
		l.closeWrite()
	}
}

// copy forwards frames until an error, or until a frame of the client is lost. It still reads the server's data on a
// cut line, so that the connection is not reset.
func (l *tapLine) copy(d Direction, src io.Reader, dst io.Writer) {
	r := amqpwire.NewReader(src, 0)
	if d == ToServer {
		header, err := r.ReadProtocolHeader()
		if err != nil {
			return
		}
		if _, err := dst.Write(header[:]); err != nil {
			return
		}
	}
	names := frameNames{}
	for {
		raw, err := r.ReadFrame()
		if err != nil {
			return
		}
		f := names.frame(raw)
		f.Line, f.Direction = l.name, d
		pass := func() error {
			_, err := dst.Write(wire(raw))
			return err
		}
		var lost bool
		if raw.Type == amqpwire.FrameHeartbeat {
			if lost = l.isDead(); !lost {
				err = pass()
			}
		} else {
			lost, err = l.tap.cross(l, f, pass)
		}
		switch {
		case err != nil, lost && d == ToServer:
			return
		case lost && f.Name == amqpwire.IDBasicQosOk.String():
			l.answer()
		}
	}
}
