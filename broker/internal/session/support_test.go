package session

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// testConfig returns a configuration with one virtual host, in which the user u with the password p has all permissions.
func testConfig(tb testing.TB, disk store.Store) *Config {
	host := vhost.New("/", vhost.Config{Log: slog.New(slog.DiscardHandler)})
	tb.Cleanup(host.Close)
	control := access.New()
	_ = control.SetUser(access.User{Name: "u", Hash: access.HashPassword("p")})
	_ = control.SetPermission(access.Permission{User: "u", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"})
	return &Config{
		VHost:      func(string) *vhost.VHost { return host },
		Access:     control,
		ChannelMax: 10, FrameMax: 8192, MaxMessageSize: 1 << 16, Budget: budget.NewConnections(64<<20, 512<<20),
		Store: disk, Log: slog.New(slog.DiscardHandler), Stats: new(stats.Node),
	}
}

// hello returns the frames of a client up to connection.open.
func hello() []byte {
	b := append([]byte(nil), amqpwire.ProtocolHeader[:]...)
	for _, m := range []amqpwire.Method{
		&amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"},
		&amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192},
		&amqpwire.ConnectionOpen{VirtualHost: "/"},
	} {
		b, _ = amqpwire.AppendMethodFrame(b, 0, m)
	}
	return b
}

// testSession is a session after the handshake. The test handles its frames and empties its outbox.
type testSession struct {
	*Session
	tb testing.TB
}

func open(tb testing.TB, disk store.Store) testSession {
	client, server := net.Pipe()
	tb.Cleanup(func() { _, _ = client.Close(), server.Close() })
	s := New(server, testConfig(tb, disk))
	s.user, s.vhost, s.channelMax, s.frameMax = "u", s.config.VHost("/"), s.config.ChannelMax, s.config.FrameMax
	return testSession{s, tb}
}

// receive handles methods from the client.
func (s testSession) receive(channel uint16, methods ...amqpwire.Method) {
	s.tb.Helper()
	for _, m := range methods {
		b, err := amqpwire.AppendMethodFrame(nil, channel, m)
		if err != nil {
			s.tb.Fatal(err)
		}
		s.receiveFrames(b)
	}
}

func (s testSession) receiveFrames(b []byte) {
	s.tb.Helper()
	for in := amqpwire.NewReader(bytes.NewReader(b), 0); ; {
		f, err := in.ReadFrame()
		if err == io.EOF {
			return
		}
		if err != nil {
			s.tb.Fatal(err)
		}
		s.handle(f)
	}
}

// sent returns and removes the methods in the outbox.
func (s testSession) sent() (methods []amqpwire.Method) {
	s.tb.Helper()
	var all []byte
	for batch, _, _ := s.out.take(); batch != nil; batch, _, _ = s.out.take() {
		all = append(all, batch...)
	}
	for in := amqpwire.NewReader(bytes.NewReader(all), 0); ; {
		f, err := in.ReadFrame()
		if err == io.EOF {
			return methods
		}
		if err != nil {
			s.tb.Fatal(err)
		}
		if f.Type != amqpwire.FrameMethod {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			s.tb.Fatal(err)
		}
		methods = append(methods, m)
	}
}
