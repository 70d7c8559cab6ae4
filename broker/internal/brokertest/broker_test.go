package brokertest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// publicListener is a listener with an address that other machines can reach.
type publicListener struct{ net.Listener }

func (publicListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 5672} }

func TestServeRefusesDefaultPasswordOnPublicListener(t *testing.T) {
	for _, test := range []struct {
		users   map[string]string
		refused bool
	}{
		{nil, true},
		{map[string]string{"guest": "guest", "ada": "s3cret"}, true},
		{map[string]string{"guest": "s3cret"}, false},
		{map[string]string{"ada": "s3cret"}, false},
	} {
		b, err := broker.New(broker.Config{Users: test.users})
		must(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		served := make(chan error, 1)
		go func() { served <- b.Serve(publicListener{l}) }()
		if test.refused {
			if err := <-served; err == nil || !strings.Contains(err.Error(), "cannot listen on 0.0.0.0:5672") {
				t.Errorf("users %v: unexpected error from Serve: %v", test.users, err)
			}
		}
		must(t, b.Shutdown(context.Background()))
		if !test.refused {
			if err := <-served; !errors.Is(err, broker.ErrClosed) {
				t.Errorf("users %v: unexpected error from Serve: %v", test.users, err)
			}
		}
	}
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	for want, config := range map[string]broker.Config{
		"whole seconds":        {Heartbeat: 1500 * time.Millisecond},
		"between 8192 and":     {FrameMax: 4096},
		"must not be negative": {MaxMessageSize: -1},
		"MaxMessageSize must be at most 536870912 bytes: got 536870913":                          {MaxMessageSize: 512<<20 + 1},
		"ConnectionMemoryLimit must be at least 33554432, twice Config.MaxMessageSize: got 1024": {ConnectionMemoryLimit: 1024},
		"TotalConnectionMemoryLimit must be at least Config.ConnectionMemoryLimit, 2048: got 1024": {
			MaxMessageSize: 100, ConnectionMemoryLimit: 2048, TotalConnectionMemoryLimit: 1024,
		},
		"Config.Users[\"\"]": {Users: map[string]string{"": "x"}},
	} {
		if _, err := broker.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got error %v, want %q", err, want)
		}
	}
}

func TestShutdownClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		closed := conn.NotifyClose(make(chan *amqp.Error, 1))
		must(t, b.Shutdown(context.Background()))
		if e := <-closed; e == nil || e.Code != 320 || !strings.Contains(e.Reason, "shutdown") {
			t.Errorf("connection closed with %v, want code 320 and shutdown", e)
		}
		if _, err := b.DialContext(context.Background(), "", ""); !errors.Is(err, broker.ErrClosed) {
			t.Errorf("DialContext: got %v, want ErrClosed", err)
		}
	})
}

// An unresponsive client does not delay a shutdown beyond the caller's deadline.
func TestShutdownCutsUnresponsiveClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		must(t, err)
		conn, err := b.DialContext(t.Context(), "", "")
		must(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: got %v, want DeadlineExceeded", err)
		}
	})
}

func TestHeartbeatsKeepIdleConnectionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		time.Sleep(24 * time.Hour)
		must(t, declare(channel(t, conn), "q", nil))
	})
}

// stuckConn is a client's connection on which each read waits for gate.
type stuckConn struct {
	net.Conn
	gate chan struct{}
}

func (s stuckConn) Read(b []byte) (int, error) { <-s.gate; return s.Conn.Read(b) }

// If a consumer does not read, the broker stops sending messages to it, and the messages stay in the queue.
func TestSlowConsumerDoesNotEmptyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, size = 400, 64 << 10
		b, conn := start(t, broker.Config{})
		must(t, declare(channel(t, conn), "q", nil))

		gate := make(chan struct{})
		go func() {
			for range 100 { // enough reads for the handshake
				gate <- struct{}{}
			}
		}()
		slow, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{
			Heartbeat: time.Hour,
			Dial: func(network, addr string) (net.Conn, error) {
				c, err := b.DialContext(t.Context(), network, addr)
				return stuckConn{c, gate}, err
			},
		})
		must(t, err)
		defer slow.Close()
		deliveries, err := channel(t, slow).Consume("q", "", true, false, false, false, nil)
		must(t, err)

		ch := channel(t, conn)
		must(t, ch.Confirm(false))
		for range n {
			confirm, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: make([]byte, size)})
			must(t, err)
			confirm.Wait()
		}
		synctest.Wait()
		if left := b.Queues()[0].Ready; left < n/2 {
			t.Errorf("messages in the queue: got %d, want at least %d", left, n/2)
		}
		close(gate)
		for range n {
			<-deliveries
		}
	})
}
