package workertest

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
)

// cutConn is a connection that fails at the first write after the cut, if it is the consuming connection of a client.
type cutConn struct {
	net.Conn
	cut       *atomic.Bool
	consuming atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("operator consume")) { // the name of the connection
		c.consuming.Store(true)
	}
	if c.consuming.Load() && c.cut.Load() {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// A command declares its queue on the connection that publishes it. Another node of a cluster could refuse the message,
// because it does not know the queue yet.
func TestOperatorPausesQueueWithoutConsumingConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, _ := pausable(r)
		var cut atomic.Bool
		operator := dial(t, b.URL, func(c *reprise.Config) {
			c.Name = "operator"
			c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &cutConn{Conn: conn, cut: &cut}, nil
			}
		})
		cut.Store(true)
		control(t, operator, protocol.Command{Do: protocol.DoPause, Queue: queue})
		if n := r.depth(protocol.PauseQueuePrefix + queue); n != 1 {
			t.Errorf("got %d stored pauses, want 1", n)
		}
		control(t, operator, protocol.Command{Do: protocol.DoResume, Queue: queue})
	})
}
