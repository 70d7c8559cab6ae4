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
	client net.Conn // our end of the pipe to the client
	server net.Conn

	// Under tap.mu.
	dead      bool                // cut
	last      tapFrame            // that the server has got
	unsettled map[uint16][]uint64 // delivery tags that the client has got, by channel

	answered chan struct{} // closed when the server has answered after the cut, or never will
	answer   func()        // closes it
}

func newTapLine(p *Tap, name string) *tapLine {
	answered := make(chan struct{})
	return &tapLine{
		tap: p, name: name, client: noConn{}, server: noConn{},
		unsettled: make(map[uint16][]uint64),
		answered:  answered, answer: sync.OnceFunc(func() { close(answered) }),
	}
}

// noConn stands for a connection that is not there yet.
type noConn struct{ net.Conn }

// Close implements net.Conn.
func (noConn) Close() error { return nil }

// tapConn is the client's end of a connection.
type tapConn struct {
	net.Conn
	free func()
}

// Close implements net.Conn.
func (c *tapConn) Close() error {
	c.free()
	return c.Conn.Close()
}

// free lets another connection have the name.
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

// inMessage reports whether the server has got a part of a message.
func (l *tapLine) inMessage() bool {
	return l.last.Name == amqpwire.IDBasicPublish.String() || l.last.Name == amqpwire.IDBasicPublish.String()+headerSuffix
}

// note notes a frame that crosses, and returns how many deliveries it
// acknowledges.
func (l *tapLine) note(f tapFrame) (acked int) {
	if f.Direction == ToServer {
		l.last = f
	}
	tags := l.unsettled[f.channel]
	switch m := f.method.(type) {
	case *amqpwire.BasicDeliver:
		tags = append(tags, m.DeliveryTag)
	case *amqpwire.BasicAck:
		if f.Direction == ToServer { // and no confirm
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

// settle returns the tags that are left, and how many are not.
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

// certain returns when the server has done what it was told on the line. There is
// no answer to an acknowledgement: a server may or may not heed one that came just
// before the end. So it is asked something that has an answer. (Something that the
// server sends after it is answer enough.)
func (l *tapLine) certain() {
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

// hangUp ends what goes to the server. Of a socket only one half is closed, since
// closing it with bytes unread would reset the connection, and the server might
// lose what it has not read.
func (l *tapLine) hangUp() {
	half, ok := l.server.(interface{ CloseWrite() error })
	if !ok {
		l.server.Close()
		return
	}
	half.CloseWrite()
	l.server.SetReadDeadline(time.Now().Add(2 * time.Second))
}

// forward passes frames in one direction until that ends.
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
		l.client.Close() // it has noticed
	default:
		l.hangUp()
	}
}

// copy passes frames until it cannot, or one from the client is lost. What the
// server sends to a line that was cut is read, so that it is not reset.
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
