package workertest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// blockableConn is a connection whose reads a test can block.
type blockableConn struct {
	net.Conn
	reading *sync.RWMutex // the blocking side holds the write lock
}

func (d blockableConn) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.reading.RLock()
	defer d.reading.RUnlock()
	return n, err
}

// Order of the client's connections.
const (
	publishes int32 = 1
	consumes  int32 = 2
)

// dialBlockable blocks the reads of one of the client's connections while reading is locked.
func dialBlockable(reading *sync.RWMutex, which int32) func(*reprise.Config) {
	var dials atomic.Int32
	return func(c *reprise.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			if conn, err = (&net.Dialer{}).DialContext(ctx, network, addr); err == nil && dials.Add(1) == which {
				conn = blockableConn{conn, reading}
			}
			return conn, err
		}
	}
}

// The Go channels for the broker's responses must have room for all messages in flight. Otherwise the AMQP client drops
// responses while this process is blocked.
func TestMessagesInFlightAreLimited(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const bound, more = 1024, 100
		m := newConfirmGate()
		c := dial(m.intercept)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "work"}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "work"}); err != nil {
			t.Fatal(err)
		}
		r.take("work")

		m.mute("work")
		results := make(chan error, bound+more)
		for range bound + more {
			go func() { results <- c.Publish(t.Context(), &reprise.Message{RoutingKey: "work"}) }()
		}
		synctest.Wait()
		if n := r.depth("work"); n != bound {
			t.Errorf("%d messages are in flight, want %d", n, bound)
		}
		m.release(t)
		for range bound + more {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}
