package workertest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// confirmGate withholds the broker's responses for messages to some queues, as if these queues had lost their majority.
type confirmGate struct {
	mu      sync.Mutex
	queues  map[string]bool
	inOrder bool // a withheld confirm also blocks the later confirms on its channel
	held    []func() error
	conns   []*gatedConn
}

// mute withholds the confirms of a queue. release delivers the withheld confirms.
func (m *confirmGate) mute(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queues[queue] = true
}

func (m *confirmGate) release(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	held := m.held
	m.queues, m.held = map[string]bool{}, nil
	m.mu.Unlock()
	for _, deliver := range held {
		if err := deliver(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
	}
}

// unmute stops withholding the confirms of later messages to a queue.
func (m *confirmGate) unmute(queue string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, queue)
}

// intercept is an option for dial that passes the broker's frames through m.
func (m *confirmGate) intercept(c *reprise.Config) {
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return m.wrap(conn), nil
	}
}

func newConfirmGate() *confirmGate { return &confirmGate{queues: map[string]bool{}} }

// dialWithGate returns a client, and the gate that can withhold the confirms of its broker.
func dialWithGate(t *testing.T, url string, options ...func(*reprise.Config)) (client, *confirmGate) {
	t.Helper()
	m := newConfirmGate()
	return dial(t, url, append(options, m.intercept)...), m
}

// dialEmbeddedWithGate is like dialWithGate, but connects to a new broker in memory, and adds parameters to the URL.
func dialEmbeddedWithGate(t *testing.T, parameters ...string) (client, *confirmGate) {
	t.Helper()
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Shutdown(context.Background()) })
	c, m := dialWithGate(t, "amqp://guest:guest@memory?"+strings.Join(parameters, "&"), func(c *reprise.Config) { c.Dial = b.DialContext })
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c, m
}

// dropFrames makes the existing connections drop all further frames of the broker, except heartbeats.
func (m *confirmGate) dropFrames() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		c.dropped = true
	}
}

// cut closes the existing connections.
func (m *confirmGate) cut() {
	m.mu.Lock()
	conns := m.conns
	m.conns = nil
	m.mu.Unlock()
	for _, c := range conns {
		_ = c.Conn.Close()
	}
}

// channels returns the number of open channels in confirm mode.
func (m *confirmGate) channels() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		n += len(c.open)
	}
	return n
}

// heartbeat returns the negotiated heartbeat interval.
func (m *confirmGate) heartbeat() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.conns[0].beats) * time.Second
}

// gatedConn is a connection of a client whose confirms pass a confirmGate.
type gatedConn struct {
	*relayConn
	*confirmGate
	writing []byte // incomplete frame
	open    map[uint16]*mutedChannel
	dropped bool
	beats   uint16 // heartbeat interval from the client in seconds
}

type mutedChannel struct {
	published uint64
	open      map[uint64]string // queues of the messages without a response, by delivery tag
	stuck     bool              // a confirm is withheld
}

func (m *confirmGate) wrap(conn net.Conn) *gatedConn {
	c := &gatedConn{confirmGate: m, open: map[uint16]*mutedChannel{}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns = append(m.conns, c)
	c.relayConn = relay(conn, c.filter)
	return c
}

// Write implements net.Conn. It records the destinations of published messages.
func (c *gatedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writing = append(c.writing, p...)
	if string(c.writing[:4]) == "AMQP" {
		c.writing = c.writing[8:]
	}
	for len(c.writing) >= 7 {
		size := 7 + int(binary.BigEndian.Uint32(c.writing[3:])) + 1
		if len(c.writing) < size {
			break
		}
		c.recordFrame(c.writing[:size])
		c.writing = c.writing[size:]
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *gatedConn) recordFrame(frame []byte) {
	if frame[0] != byte(amqpwire.FrameMethod) {
		return
	}
	number := binary.BigEndian.Uint16(frame[1:])
	switch m, _ := amqpwire.ParseMethod(frame[7 : len(frame)-1]); m := m.(type) {
	case *amqpwire.ConnectionTuneOk:
		c.beats = m.Heartbeat
	case *amqpwire.ConfirmSelect:
		c.open[number] = &mutedChannel{open: map[uint64]string{}}
	case *amqpwire.ChannelClose:
		delete(c.open, number)
	case *amqpwire.BasicPublish:
		if ch := c.open[number]; ch != nil {
			ch.published++
			ch.open[ch.published] = m.RoutingKey
		}
	}
}

// filter returns the bytes that the client receives instead of a frame of the broker.
func (c *gatedConn) filter(frame []byte) (reply []byte) {
	number := binary.BigEndian.Uint16(frame[1:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped && frame[0] != byte(amqpwire.FrameHeartbeat) {
		return nil
	}
	ch := c.open[number]
	if frame[0] != byte(amqpwire.FrameMethod) || ch == nil {
		return frame
	}
	m, err := amqpwire.ParseMethod(frame[7 : len(frame)-1])
	ack, ok := m.(*amqpwire.BasicAck)
	if err != nil || !ok {
		return frame
	}
	reply = []byte{}
	for _, tag := range slices.Sorted(maps.Keys(ch.open)) {
		if tag > ack.DeliveryTag || tag < ack.DeliveryTag && !ack.Multiple {
			continue
		}
		queue := ch.open[tag]
		delete(ch.open, tag)
		one, _ := amqpwire.AppendMethodFrame(nil, number, &amqpwire.BasicAck{DeliveryTag: tag})
		if !c.queues[queue] && !(c.inOrder && ch.stuck) {
			reply = append(reply, one...)
			continue
		}
		ch.stuck = true
		c.held = append(c.held, func() error {
			c.mu.Lock()
			closed := c.open[number] != ch
			ch.stuck = false
			c.mu.Unlock()
			if closed {
				return nil
			}
			_, err := c.out.Write(one)
			return err
		})
	}
	return reply
}
