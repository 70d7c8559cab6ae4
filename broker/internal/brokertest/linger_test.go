package brokertest

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// keptOpen is a client's connection that ignores Close.
type keptOpen struct{ net.Conn }

func (keptOpen) Close() error { return nil }

// If a client keeps its socket open after connection.close-ok, the broker closes the socket after 30 s or the heartbeat
// interval, whichever is shorter. Such a client does not delay a shutdown.
func TestBrokerClosesLingeringSocket(t *testing.T) {
	for name, test := range map[string]struct {
		heartbeat, lasts time.Duration
		shutdown         bool
	}{
		"long heartbeat":  {time.Minute, 30 * time.Second, false},
		"short heartbeat": {4 * time.Second, 4 * time.Second, false},
		"shutdown":        {time.Minute, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := broker.New(broker.Config{})
				must(t, err)
				var socket net.Conn
				conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{
					Heartbeat: test.heartbeat,
					Dial: func(network, addr string) (net.Conn, error) {
						socket, err = b.DialContext(context.Background(), network, addr)
						return keptOpen{socket}, err
					},
				})
				must(t, err)
				must(t, conn.Close())
				began := time.Now()
				if test.shutdown {
					must(t, b.Shutdown(context.Background()))
				}
				_, _ = socket.Read(make([]byte, 1))
				if lasted := time.Since(began); lasted != test.lasts {
					t.Errorf("the broker closed the socket after %v, want %v", lasted, test.lasts)
				}
				must(t, socket.Close())
				must(t, b.Shutdown(context.Background()))
			})
		})
	}
}
