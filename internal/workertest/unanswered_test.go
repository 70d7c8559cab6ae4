package workertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Class and method IDs of further responses of a broker.
var (
	channelClose   = []byte{0, 20, 0, 40}
	channelCloseOK = []byte{0, 20, 0, 41}
	declareOK      = []byte{0, 50, 0, 11}
	exchangeOK     = []byte{0, 40, 0, 11}
	cancelOK       = []byte{0, 60, 0, 31}
	getOK          = []byte{0, 60, 0, 71}
	confirmOK      = []byte{0, 85, 0, 11}
)

// responseDropper drops all responses of one kind on one of the client's first two connections.
type responseDropper struct {
	answer []byte
	on     int32 // publishes or consumes
	now    atomic.Bool
	open   map[uint16]bool // open channels
	most   atomic.Int32    // largest number of open channels
}

func (g *responseDropper) intercept(c *reprise.Config) {
	memory, dials := c.Dial, int32(0)
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := memory(ctx, network, addr)
		if dials++; dials != g.on || err != nil {
			return conn, err
		}
		return relay(conn, func(frame []byte) []byte {
			switch number := binary.BigEndian.Uint16(frame[1:]); {
			case bytes.HasPrefix(frame[7:], channelOpenOK):
				g.open[number] = true
			case bytes.HasPrefix(frame[7:], channelCloseOK), bytes.HasPrefix(frame[7:], channelClose):
				delete(g.open, number)
			}
			g.most.Store(max(g.most.Load(), int32(len(g.open))))
			if g.now.Load() && bytes.HasPrefix(frame[7:], g.answer) {
				return nil
			}
			return frame
		}), nil
	}
}

// A broker that never responds to some requests does not exhaust the channels of the client. The client replaces the
// connection while it still has channels for other requests.
func TestClientReplacesUnresponsiveConnection(t *testing.T) {
	t.Parallel()
	within := func(d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), d)
	}
	for name, tc := range map[string]struct {
		answer []byte
		on     int32
		ask    func(c client) // repeated action of the program; nil: the worker acts
		handle func(*reprise.Delivery) error
		first  bool // also drop the first response
	}{
		"consume":        {answer: consumeOK, on: consumes},
		"qos":            {answer: qosOK, on: consumes},
		"declare":        {answer: declareOK, on: consumes},
		"close":          {answer: channelCloseOK, on: consumes},
		"cancel":         {answer: cancelOK, on: consumes, handle: func(*reprise.Delivery) error { return reprise.PauseFor(time.Second, errScripted) }},
		"declare a copy": {answer: declareOK, on: publishes, handle: func(*reprise.Delivery) error { return reprise.Park(errScripted) }},
		"confirm select": {answer: confirmOK, on: publishes, first: true},
		"depth":          {answer: declareOK, on: consumes, ask: func(c client) { ctx, end := within(5 * time.Second); defer end(); _, _ = c.Depth(ctx, "other") }},
		"peek": {answer: getOK, on: consumes, ask: func(c client) {
			ctx, end := within(5 * time.Second)
			defer end()
			_ = c.Peek(ctx, "other", 1, func(*reprise.Delivery) {})
		}},
		"healthy":       {answer: channelCloseOK, on: publishes, ask: func(c client) { ctx, end := within(5 * time.Second); defer end(); _ = c.Healthy(ctx) }},
		"healthy, open": {answer: channelOpenOK, on: publishes, ask: func(c client) { ctx, end := within(5 * time.Second); defer end(); _ = c.Healthy(ctx) }},
		"schedule, check": {answer: exchangeOK, on: publishes, ask: func(c client) {
			ctx, end := within(5 * time.Second)
			defer end()
			_ = c.PublishIn(ctx, time.Hour, &reprise.Message{Exchange: "amq.topic", RoutingKey: fmt.Sprint(time.Now().Unix())})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				g := &responseDropper{answer: tc.answer, on: tc.on, open: map[uint16]bool{}}
				g.now.Store(tc.first)
				if err := dial().Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "other"}}}); err != nil {
					t.Fatal(err)
				}
				r.publish("", "other", amqp.Publishing{})
				c := dial(g.intercept)
				handled := make(chan string, 1000)
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					handled <- m.MessageID
					if tc.handle != nil && m.MessageID != "last" {
						return tc.handle(m)
					}
					return nil
				})})
				if err != nil {
					t.Fatal(err)
				}
				if tc.ask == nil && tc.handle == nil {
					g.now.Store(true)
				}
				ctx, cancel := context.WithCancel(context.Background())
				ran := make(chan error, 1)
				go func() { ran <- w.Run(ctx) }()
				if tc.ask != nil || tc.handle != nil {
					c.log.wait(t, "consuming", 1)
					g.now.Store(true)
				}
				for range 3 * 60 {
					if tc.handle != nil {
						r.publish("", "work", amqp.Publishing{})
					}
					if tc.ask != nil {
						tc.ask(c)
					}
					time.Sleep(time.Minute)
				}
				ctx2, end := within(time.Hour)
				defer end()
				if err := c.Healthy(ctx2); err != nil {
					t.Errorf("Healthy: %v", err)
				}
				if n, err := c.Depth(ctx2, "other"); err != nil || n != 1 {
					t.Errorf("Depth: got %d, %v; want 1", n, err)
				}
				if err := c.Publish(ctx2, &reprise.Message{MessageID: "last", RoutingKey: "work"}); err != nil {
					t.Errorf("Publish: %v", err)
				}
				for last := ""; last != "last" && !t.Failed(); {
					select {
					case last = <-handled:
					case <-ctx2.Done():
						t.Error("worker handled no message")
					}
				}
				if n := g.most.Load(); n > 140 {
					t.Errorf("connection had %d channels, want at most 140", n)
				}
				if n := c.log.count("connected"); n < 3 || n > 4 {
					t.Errorf("got %d connections, want 3 or 4", n)
				}
				cancel()
				if err := <-ran; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A broker that has blocked the publishing connection does not respond on this connection. During the alarm, the client
// sends no requests on the connection, so that the channels are available after the alarm.
func TestClientOpensNoChannelsWhileBlocked(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var publishing *alarmConn
		var blocked atomic.Bool
		var opened atomic.Int32
		c := dial(func(c *reprise.Config) {
			memory, dials := c.Dial, int32(0)
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := memory(ctx, network, addr)
				if dials++; dials != publishes || err != nil {
					return conn, err
				}
				var held []byte
				publishing = &alarmConn{relay(conn, func(frame []byte) []byte {
					const heartbeat = 8
					switch {
					case !blocked.Load():
						frame, held = append(held, frame...), nil
					case frame[0] != heartbeat:
						if bytes.HasPrefix(frame[7:], channelOpenOK) {
							opened.Add(1)
						}
						held = append(held, frame...)
						return nil
					}
					return frame
				})}
				return publishing, nil
			}
		})
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		synctest.Wait() // waits for the channels that the client opens after it has connected
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		blocked.Store(true)
		r.publish("", "work", amqp.Publishing{})
		for range 6 * 60 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if err := c.PublishIn(ctx, time.Hour, &reprise.Message{Exchange: "amq.topic", RoutingKey: "key"}); err == nil {
				t.Error("PublishIn succeeded while the connection was blocked")
			}
			cancel()
			time.Sleep(time.Minute)
		}
		if n := opened.Load(); n > 0 {
			t.Errorf("client opened %d channels, want 0", n)
		}
		blocked.Store(false)
		publishing.inject(t, "")
		c.log.wait(t, "parked", 1)
		if n := c.log.count("connection lost"); n != 0 {
			t.Errorf("connection was lost %d times, want 0", n)
		}
	})
}
