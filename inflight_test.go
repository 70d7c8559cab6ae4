package reprise_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// deaf is a connection whose reader can be made to wait.
type deaf struct {
	net.Conn
	hearing *sync.RWMutex // held by whoever makes it wait
}

func (d deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.hearing.RLock()
	defer d.hearing.RUnlock()
	return n, err
}

// The order in which a client connects.
const (
	publishes int32 = 1
	consumes  int32 = 2
)

// deafDial makes one of the client's connections wait for hearing.
func deafDial(hearing *sync.RWMutex, which int32) func(*reprise.Config) {
	var dials atomic.Int32
	return func(c *reprise.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			if conn, err = (&net.Dialer{}).DialContext(ctx, network, addr); err == nil && dials.Add(1) == which {
				conn = deaf{conn, hearing}
			}
			return conn, err
		}
	}
}

// What is in flight must fit into the channels that take the broker's answers,
// or the AMQP client drops some of them while this process is stuck.
func TestWhatIsInFlightIsBounded(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const bound, more = 1024, 100
		r := newRaw(t, b.URL)
		queue := testkit.Name(t, "q")
		r.deleteQueues(queue)
		var hearing sync.RWMutex
		c := dial(t, b.URL, deafDial(&hearing, publishes))
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
		r.take(queue)

		hearing.Lock()
		results := make(chan error, bound+more)
		for range bound + more {
			go func() { results <- c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}) }()
		}
		testkit.Eventually(t, patience, func() error {
			if n := r.depth(queue); n < bound {
				return fmt.Errorf("%d messages have arrived", n)
			}
			return nil
		})
		time.Sleep(100 * time.Millisecond)
		if n := r.depth(queue); n != bound {
			t.Errorf("%d messages are in flight, want %d", n, bound)
		}
		hearing.Unlock()
		for range bound + more {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}
