package amqpclient

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Config is the configuration of a connection.
type Config struct {
	Mechanisms []Mechanism // in order of preference
	Vhost      string
	Properties amqpwire.Table // of the client
	ChannelMax uint16         // maximum; 0 means that of the broker
	FrameMax   uint32         // maximum in bytes
	Heartbeat  time.Duration  // in seconds; 0 means the interval of the broker

	// Blocked is called when the broker blocks or unblocks the connection. It must not block.
	Blocked func(active bool, reason string)
}

// Mechanism is a SASL mechanism with its initial response.
type Mechanism struct{ Name, Response string }

// Open performs the handshake. The caller limits its duration with a deadline of the socket, and closes the socket after an
// error.
func Open(socket net.Conn, cfg Config) (*Conn, error) {
	in := &timed{Conn: socket}
	c := &Conn{
		socket: socket, reader: amqpwire.NewReader(in, maxFrame), writer: newWriter(socket), blocked: cfg.Blocked,
		channels: map[uint16]*Channel{}, ended: make(chan struct{}),
	}
	if err := c.handshake(cfg); err != nil {
		return nil, err
	}
	if err := socket.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	in.silence = silentBeats * c.Heartbeat
	go c.read()
	if c.Heartbeat > 0 {
		go c.beat()
	}
	return c, nil
}

func (c *Conn) handshake(cfg Config) error {
	if _, err := c.socket.Write(amqpwire.ProtocolHeader[:]); err != nil {
		return err
	}
	start, err := expect[*amqpwire.ConnectionStart](c)
	if err != nil {
		return err
	}
	c.Server = start.ServerProperties
	offered := strings.Fields(start.Mechanisms)
	i := slices.IndexFunc(cfg.Mechanisms, func(m Mechanism) bool { return slices.Contains(offered, m.Name) })
	if i < 0 {
		return ErrMechanism
	}
	login := cfg.Mechanisms[i]
	if err := c.send(0, &amqpwire.ConnectionStartOk{ClientProperties: cfg.Properties, Mechanism: login.Name, Response: login.Response, Locale: "en_US"}); err != nil {
		return err
	}
	tune, err := expect[*amqpwire.ConnectionTune](c)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return ErrLogin
	}
	if err != nil {
		return err
	}
	c.ChannelMax = lower(cfg.ChannelMax, tune.ChannelMax, math.MaxUint16)
	c.FrameMax = max(amqpwire.MinFrameMax, lower(cfg.FrameMax, tune.FrameMax, amqpwire.DefaultFrameMax))
	beats := lower(uint16(cfg.Heartbeat/time.Second), tune.Heartbeat, 0)
	c.Heartbeat = time.Duration(beats) * time.Second
	if err := c.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: c.ChannelMax, FrameMax: c.FrameMax, Heartbeat: beats}); err != nil {
		return err
	}
	if err := c.send(0, &amqpwire.ConnectionOpen{VirtualHost: cfg.Vhost}); err != nil {
		return err
	}
	_, err = expect[*amqpwire.ConnectionOpenOk](c)
	return err
}

// expect reads the next method of the handshake.
func expect[M amqpwire.Method](c *Conn) (M, error) {
	var none M
	for {
		f, err := c.reader.ReadFrame()
		if err != nil {
			return none, err
		}
		if f.Type == amqpwire.FrameHeartbeat {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if f.Type != amqpwire.FrameMethod || err != nil {
			return none, unexpected("frame of type %d during the handshake: %v", f.Type, err)
		}
		switch m := m.(type) {
		case M:
			return m, nil
		case *amqpwire.ConnectionClose:
			_ = c.send(0, &amqpwire.ConnectionCloseOk{})
			return none, closedBy(m)
		}
		return none, fmt.Errorf("amqpclient: unexpected method %v during the handshake", m.ID())
	}
}

// lower returns the lower limit of both sides, where 0 means no limit. If none has a limit, it returns otherwise.
func lower[T uint16 | uint32](a, b, otherwise T) T {
	switch {
	case a == 0 && b == 0:
		return otherwise
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}
