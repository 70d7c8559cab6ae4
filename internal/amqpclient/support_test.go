package amqpclient_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/amqpclient"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// server is the other side of a connection, written by a test.
type server struct {
	t      testing.TB
	socket net.Conn
	reader *amqpwire.Reader
	out    chan []byte // as large as the buffer of a socket
}

// pipe returns the two sides of a connection.
func pipe(t testing.TB) (net.Conn, *server) {
	t.Helper()
	client, socket := net.Pipe()
	s := &server{t, socket, amqpwire.NewReader(socket, 0), make(chan []byte, 100)}
	done := make(chan struct{})
	go func() {
		defer func() { _ = socket.Close() }()
		for {
			select {
			case p, ok := <-s.out:
				if !ok {
					return
				}
				_, _ = socket.Write(p)
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		_ = client.Close()
	})
	return client, s
}

func (s *server) send(channel uint16, methods ...amqpwire.Method) {
	for _, m := range methods {
		frame, err := amqpwire.AppendMethodFrame(nil, channel, m)
		if err != nil {
			s.t.Error(err)
		}
		s.out <- frame
	}
}

// next returns the next method, or nil if the client has closed the connection.
func (s *server) next() amqpwire.Method {
	for {
		f, err := s.reader.ReadFrame()
		if err != nil {
			return nil
		}
		if f.Type != amqpwire.FrameMethod {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			s.t.Error(err)
		}
		return m
	}
}

// open opens channel 1 of a client.
func (s *server) open(c *amqpclient.Conn, h amqpclient.Handler) *amqpclient.Channel {
	opened := make(chan *amqpclient.Channel)
	go func() {
		ch, err := c.Open(h)
		if err != nil {
			s.t.Error(err)
		}
		opened <- ch
	}()
	s.next()
	s.send(1, &amqpwire.ChannelOpenOk{})
	return <-opened
}

// start begins the handshake until the login.
func (s *server) start() *amqpwire.ConnectionStartOk {
	if _, err := s.reader.ReadProtocolHeader(); err != nil {
		s.t.Error(err)
	}
	s.send(0, &amqpwire.ConnectionStart{VersionMinor: 9, Mechanisms: "AMQPLAIN PLAIN", Locales: "en_US"})
	ok, _ := s.next().(*amqpwire.ConnectionStartOk)
	return ok
}

// accept performs the handshake.
func (s *server) accept(tune amqpwire.ConnectionTune) *amqpwire.ConnectionTuneOk {
	s.start()
	s.send(0, &tune)
	ok, _ := s.next().(*amqpwire.ConnectionTuneOk)
	if open, is := s.next().(*amqpwire.ConnectionOpen); !is || open.VirtualHost != "v" {
		s.t.Errorf("got %+v, want connection.open", open)
	}
	s.send(0, &amqpwire.ConnectionOpenOk{})
	return ok
}

var config = amqpclient.Config{Mechanisms: []amqpclient.Mechanism{{Name: "PLAIN", Response: "\x00user\x00secret"}}, Vhost: "v", Blocked: func(bool, string) {}}

// connected returns a connection whose server has only performed the handshake.
func connected(t testing.TB, tune amqpwire.ConnectionTune, cfg amqpclient.Config) (*amqpclient.Conn, *server, *amqpwire.ConnectionTuneOk) {
	t.Helper()
	client, s := pipe(t)
	tuned := make(chan *amqpwire.ConnectionTuneOk, 1)
	go func() { tuned <- s.accept(tune) }()
	c, err := amqpclient.Open(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(time.Now()) })
	return c, s, <-tuned
}

// recorder is a handler that records what it receives.
type recorder struct {
	mu     sync.Mutex
	bodies []string
	ended  bool
}

func (r *recorder) Deliver(_ *amqpwire.BasicDeliver, c *amqpclient.Content) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, string(c.Body))
	return nil
}
func (r *recorder) Return(*amqpwire.BasicReturn, *amqpclient.Content) {}
func (r *recorder) Confirm(uint64, bool, bool)                        {}
func (r *recorder) Cancel(string)                                     {}
func (r *recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}
