package workertest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// flaky is a network that loses and refuses connections.
type flaky struct {
	limit time.Duration // age at which a connection is lost; 0: none

	mu       sync.Mutex
	conns    []net.Conn
	attempts int
	refuse   bool
}

// wrap makes a client use the network, and reconnect after 20 s.
func (f *flaky) wrap(c *reprise.Config) {
	dial := c.Dial
	c.Reconnect = backoff.Fixed(20 * time.Second)
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.attempts++
		if f.refuse {
			return nil, errors.New("simulated refusal")
		}
		conn, err := dial(ctx, network, addr)
		if err == nil && f.limit > 0 {
			time.AfterFunc(f.limit, func() { conn.Close() })
		}
		f.conns = append(f.conns, conn)
		return conn, err
	}
}

// cut cuts a connection, and refuses new ones if refuse is set.
func (f *flaky) cut(n int, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[n].Close()
	f.refuse = refuse
}

// When one connection of a client has reconnected, the other one does not wait for the rest of its delay.
func TestConnectionsOfClientReconnectTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		var f flaky
		c := dial(f.wrap)
		f.cut(0, true)
		time.Sleep(5 * time.Second)
		f.cut(1, true)
		time.Sleep(45 * time.Second)
		f.cut(1, false)
		time.Sleep(11 * time.Second) // the next attempts would be after 60 s and 65 s
		if err := c.Healthy(t.Context()); err != nil {
			t.Errorf("after 61 s: %v", err)
		}
	})
}

// If the broker closes each connection, the connections of a client do not end the delays of each other.
func TestConnectionsThatAreLostSoonKeepTheirDelays(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		f := flaky{limit: time.Second}
		dial(f.wrap)
		time.Sleep(10 * time.Minute)
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := f.attempts; n > 2*(10*60/20+1) {
			t.Errorf("got %d attempts in 10 minutes, want one per connection in 20 s", n)
		}
	})
}
