package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Without a URL, commands use only an embedded broker, even if RabbitMQ listens at its default address.
func TestDialEmbedded(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		client, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Dial: dialEmbedded})
		if b.IsRabbitMQ {
			if _, ok := errors.AsType[*reprise.ConnectError](err); !ok || !strings.Contains(err.Error(), "RabbitMQ "+b.Version) || !strings.Contains(err.Error(), "listens at this address, not the embedded broker") {
				t.Fatalf("got %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer HangUp(client, time.Minute)
		err = client.Publish(t.Context(), &reprise.Message{RoutingKey: testkit.Name(t, "missing"), Body: []byte("x")})
		if !errors.Is(err, reprise.ErrUnroutable) {
			t.Errorf("got %v, want %v", err, reprise.ErrUnroutable)
		}
	})
}

// The client explains other servers at the default address.
func TestDialEmbeddedOtherServers(t *testing.T) {
	for _, greeting := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_10.0\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadFull(conn, make([]byte, 8)) // otherwise the system resets the connection
				_, _ = io.WriteString(conn, greeting)
				_ = conn.Close()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = reprise.Dial(ctx, "amqp://guest:guest@"+l.Addr().String(), &reprise.Config{Dial: dialEmbedded})
		if err == nil || !strings.Contains(err.Error(), "the server does not use AMQP; check the port") {
			t.Errorf("%q: got %v", greeting, err)
		}
	}
}
