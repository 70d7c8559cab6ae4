package workertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// shortTimeout sets a ConfirmTimeout that is short, but sufficient for confirms on a busy machine.
func shortTimeout(c *reprise.Config) { c.ConfirmTimeout = 2 * time.Second }

// A queue that does not confirm does not affect other queues, regardless of the number of messages.
func TestUnconfirmingQueueDoesNotAffectOtherQueues(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, m := dialWithGate(t, b.URL, shortTimeout)
		stuck, queue := queueFor(t, r, c, nil), queueFor(t, r, c, nil)
		for _, q := range []string{stuck, queue} {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: q}); err != nil {
				t.Fatal(err)
			}
		}
		m.mute(stuck)
		var sent, unsent int
		publish := func(n int) {
			results := make(chan error, n)
			before := r.depth(stuck)
			var all sync.WaitGroup
			for range n {
				all.Go(func() { results <- c.Publish(t.Context(), &reprise.Message{RoutingKey: stuck}) })
			}
			testkit.Eventually(t, timeout, func() bool { return r.depth(stuck) > before })
			for range 10 {
				if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil && n == 1 {
					t.Errorf("publish after an unconfirmed message: %v", err)
				}
			}
			all.Wait()
			for range n {
				switch err := <-results; {
				case errors.Is(err, reprise.ErrUnconfirmed) && !errors.Is(err, reprise.ErrStalled):
					sent++
				case errors.Is(err, reprise.ErrStalled) && !errors.Is(err, reprise.ErrUnconfirmed):
					unsent++
				default:
					t.Errorf("unconfirmed message: got %v, want ErrUnconfirmed, or ErrStalled for an unsent message", err)
				}
			}
		}
		publish(1)
		publish(1500)
		for range 100 {
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
				t.Fatalf("cannot publish to another queue: %v", err)
			}
		}
		if n := r.depth(stuck); n != 1+sent || unsent == 0 {
			t.Errorf("stored messages: got %d, want 1 confirmed and %d unconfirmed; unsent messages: got %d, want at least 1", n, sent, unsent)
		}
		if err := c.Healthy(t.Context()); err != nil {
			t.Errorf("Healthy: %v", err)
		}
		m.release(t)
		for range 100 {
			testkit.Eventually(t, timeout, func() error { return c.Publish(t.Context(), &reprise.Message{RoutingKey: stuck}) })
		}
	})
}

// A client that publishes only to a queue that does not confirm is unhealthy.
func TestHealthyFailsWithoutConfirms(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, m := dialWithGate(t, b.URL, shortTimeout)
		queue := queueFor(t, r, c, nil)
		m.mute(queue)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("got %v, want ErrUnconfirmed", err)
		}
		if err := c.Healthy(t.Context()); !errors.Is(err, reprise.ErrStalled) {
			t.Errorf("Healthy: got %v, want ErrStalled", err)
		}
		m.release(t)
		testkit.Eventually(t, timeout, func() error { return c.Healthy(t.Context()) })
	})
}

// If a queue behind an exchange does not confirm, the client cannot identify the queue, because each message may have a
// different routing key. Even so, no message for the queue blocks other messages for long.
func TestUnconfirmedKeysDoNotBlockOtherMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		if err := c.Declare(t.Context(), topology.Topology{
			Exchanges: []topology.Exchange{{Name: "x", Kind: topology.Fanout}},
			Queues:    []topology.Queue{{Name: "stuck"}, {Name: "q"}},
			Bindings:  []topology.Binding{{Exchange: "x", Queue: "stuck"}},
		}); err != nil {
			t.Fatal(err)
		}
		const keys = 200
		var all sync.WaitGroup
		for i := range keys {
			key := fmt.Sprint("key ", i)
			m.mute(key)
			for range 2 {
				all.Go(func() {
					if err := c.Publish(t.Context(), &reprise.Message{Exchange: "x", RoutingKey: key}); !errors.Is(err, reprise.ErrUnconfirmed) {
						t.Errorf("got %v, want ErrUnconfirmed", err)
					}
				})
			}
			time.Sleep(3 * time.Second)
			if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
				t.Errorf("cannot publish after %d keys: %v", i+1, err)
			}
		}
		all.Wait()
		if n := c.log.count("connection lost"); n != 0 {
			t.Errorf("connection was lost %d times, want 0", n)
		}
		time.Sleep(10 * time.Minute)
		if channels := m.channels(); channels > 2 { // one for messages, one for copies
			t.Errorf("open channels without a message in flight: got %d, want at most 2", channels)
		}
	})
}

// When a channel is closed, the AMQP client reports all unconfirmed messages as nacked. Publish must
// return ErrUnconfirmed instead.
func TestClosedChannelDoesNotReportNacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q"}}}); err != nil {
			t.Fatal(err)
		}
		m.mute("q")
		for range 100 { // the order of two concurrent events is random
			time.Sleep(time.Minute)
			result := make(chan error)
			go func() { result <- c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}) }()
			time.Sleep(reprise.DefaultConfirmTimeout / 120)
			m.cut()
			if err := <-result; !errors.Is(err, reprise.ErrUnconfirmed) {
				t.Fatalf("got %v, want ErrUnconfirmed", err)
			}
		}
	})
}

// A broker that has stopped reading does not even respond to channel.open, but still sends heartbeats.
func TestClientReplacesConnectionThatBrokerDoesNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m := dialEmbeddedWithGate(t)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q"}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
			t.Fatal(err)
		}
		m.dropFrames()
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); !errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("sent message: got %v, want ErrUnconfirmed", err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "q"}); err != nil {
			t.Errorf("cannot publish over the new connection: %v", err)
		}
		if n := c.log.count("broker does not read"); n != 1 {
			t.Errorf("got %d log lines about a broker that does not read, want 1", n)
		}
	})
}

// unreadConn is a connection from which the broker stops reading when stop is closed. The broker still receives heartbeats.
type unreadConn struct {
	net.Conn
	stop   <-chan struct{}
	closed chan struct{}
	close  func()
}

func newUnreadConn(conn net.Conn, stop <-chan struct{}) *unreadConn {
	closed := make(chan struct{})
	return &unreadConn{Conn: conn, stop: stop, closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

func (u *unreadConn) Write(p []byte) (int, error) {
	select {
	case <-u.stop:
	default:
		return u.Conn.Write(p)
	}
	heartbeat := time.NewTicker(time.Second / 2)
	defer heartbeat.Stop()
	for {
		select {
		case <-u.closed:
			return 0, net.ErrClosed
		case <-heartbeat.C:
			if _, err := u.Conn.Write([]byte{byte(amqpwire.FrameHeartbeat), 0, 0, 0, 0, 0, 0, 0xCE}); err != nil {
				return 0, err
			}
		}
	}
}

func (u *unreadConn) SetDeadline(at time.Time) error {
	if !at.IsZero() && !at.After(time.Now()) {
		u.close()
	}
	return u.Conn.SetDeadline(at)
}

func (u *unreadConn) Close() error {
	u.close()
	return u.Conn.Close()
}

// The client detects that a broker has stopped reading, even if no other messages or requests are in flight.
func TestClientDetectsBrokerThatStopsReading(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		stop := make(chan struct{})
		var resumed atomic.Bool
		c := dial(t, b.URL, shortTimeout, func(c *reprise.Config) {
			c.Heartbeat = time.Second
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				if err == nil && !resumed.Load() { // a busy machine may also lose and replace connections
					conn = newUnreadConn(conn, stop)
				}
				return conn, err
			}
		})
		m := &reprise.Message{RoutingKey: queueFor(t, r, c, nil), Body: make([]byte, 1<<20)}
		if err := c.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		close(stop)
		if err := c.Publish(t.Context(), m); err == nil {
			t.Error("Publish succeeded although the broker did not read the message")
		}
		resumed.Store(true)
		testkit.Eventually(t, timeout, func() error { return c.Publish(t.Context(), m) })
	})
}

// If the failed queue does not confirm, copies wait, and each copy is stored once.
func TestCopiesToUnconfirmingQueueAreStoredOnce(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, m := dialWithGate(t, b.URL, shortTimeout)
		var queues []string
		for range 2 {
			queue, strategy := r.names(topology.Buckets{})
			h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
			start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Prefetch: 100})
			queues = append(queues, queue)
		}
		stuck, other := queues[0], queues[1]
		publish := func(queue string, n int) {
			for range n {
				r.publish("", queue, amqp.Publishing{})
			}
		}
		arrived := func(queue string, n int) {
			t.Helper()
			testkit.Eventually(t, timeout, func() error {
				if have := r.depth(queue + ".failed"); have != n {
					return fmt.Errorf("queue has %d copies in %s.failed, want %d", have, queue, n)
				}
				return nil
			})
		}
		m.mute(stuck + ".failed")
		publish(stuck, 30)
		c.log.wait(t, "confirms do not come", 1)
		publish(stuck, 30)
		publish(other, 50)
		arrived(other, 50)
		c.log.wait(t, "copy failed", 1)
		m.release(t)
		arrived(stuck, 60)
		c.log.wait(t, "parked", 110)
		arrived(stuck, 60)
	})
}
