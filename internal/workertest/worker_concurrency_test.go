package workertest

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

// delayReads returns an option that delays the reads of a client until undelayed is set. (It must not delay writes. The
// client holds a lock during a write, and a goroutine that waits for a lock stops the clock of the bubble.)
func delayReads(undelayed *atomic.Bool) func(c *reprise.Config) {
	return func(c *reprise.Config) {
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return delayedConn{conn, undelayed}, err
		}
	}
}

type delayedConn struct {
	net.Conn
	undelayed *atomic.Bool
}

func (c delayedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && !c.undelayed.Load() {
		time.Sleep(2 * time.Millisecond)
	}
	return n, err
}

// The worker sends requests on the channel to verify that an ack has arrived, to pause and to resume. It must not confuse
// the responses.
func TestRequestsOnChannelAreSerialized(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var undelayed atomic.Bool
		defer undelayed.Store(true)
		c := dial(delayReads(&undelayed))
		var running atomic.Int32
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Order: reprise.AckThenPublish, Concurrency: 8, Prefetch: 16,
			Policy: reprise.Policy{MaxAttempts: 1},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				running.Add(1)
				defer running.Add(-1)
				switch m.Type {
				case "pause":
					time.Sleep(10 * time.Millisecond)
					return reprise.PauseFor(20*time.Millisecond, errScripted)
				case "long":
					time.Sleep(10 * time.Second)
					return nil
				}
				time.Sleep(time.Duration(len(m.Body)) * time.Millisecond)
				return errScripted
			}),
		})
		for round := range 20 {
			r.publish("", "work", amqp.Publishing{Type: "pause"})
			for i := range 7 {
				r.publish("", "work", amqp.Publishing{MessageId: fmt.Sprint(round, "-", i), Body: make([]byte, 25+i+round%10)})
			}
			time.Sleep(5 * time.Second)
			for range 8 {
				r.publish("", "work", amqp.Publishing{Type: "long"})
			}
			time.Sleep(5 * time.Second)
			if n := running.Load(); n != 8 {
				t.Fatalf("round %d: got %d running handlers, want 8; queue has %d messages", round, n, r.depth("work"))
			}
			time.Sleep(time.Minute)
		}
		if n := r.depth("work.failed"); n != 20*8 {
			t.Errorf("%d messages were parked, want %d", n, 20*8)
		}
	})
}

// minuteLimiter permits the first attempt immediately, and delays every later attempt by a minute.
type minuteLimiter struct{ first atomic.Bool }

func (l *minuteLimiter) Wait(ctx context.Context) error {
	if l.first.CompareAndSwap(false, true) {
		return nil
	}
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// If a pause begins while an attempt waits at the limiter, the attempt starts after the pause.
func TestPauseDelaysAttemptsAtLimiter(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "a" && m.Attempt == 1 {
				time.Sleep(time.Second)
				return reprise.PauseFor(time.Hour, errScripted)
			}
			return nil
		})
		c := dial()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Limiter: &minuteLimiter{}})
		r.publish("", "work", amqp.Publishing{MessageId: "a"})
		r.publish("", "work", amqp.Publishing{MessageId: "b"})
		time.Sleep(30 * time.Minute)
		if n := h.count(); n != 1 {
			t.Errorf("attempts during the pause: got %d, want 0", n-1)
		}
		time.Sleep(time.Hour)
		h.wait(t, 3)
	})
}

// GiveUpAfter applies to the delay that the route uses, not to the delay that the policy requests.
func TestTimeLimitIncludesDelayOfRoute(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		route    topology.Route
		backoff  backoff.Backoff
		attempts int
	}{
		{"longer than requested", topology.DeadLettering{Delay: time.Hour}, backoff.Fixed(time.Second), 1},
		{"shorter than requested", topology.DeadLettering{Delay: time.Second}, backoff.Fixed(time.Hour), 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				h := newScript(func(*reprise.Delivery) error { return errScripted })
				start(t, dial(), reprise.WorkerConfig{
					Queue: "work", Handler: h, Strategy: topology.Strategy{Route: tc.route},
					Policy: reprise.Policy{MaxAttempts: 5, GiveUpAfter: time.Minute, Backoff: tc.backoff},
				})
				r.publish("", "work", amqp.Publishing{})
				time.Sleep(5 * time.Hour)
				if n := h.count(); n != tc.attempts {
					t.Errorf("attempts: got %d, want %d", n, tc.attempts)
				}
				if n := r.depth("work.failed"); n != 1 {
					t.Errorf("%d messages were parked, want 1", n)
				}
			})
		})
	}
}

// A suspect message is processed alone, even if messages wait in a debounce window at the same time.
func TestSuspectMessageIsProcessedAlone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		if err := c.Declare(t.Context(), topology.Buckets{}.Topology("work")); err != nil {
			t.Fatal(err)
		}
		r.publish("", "work", amqp.Publishing{MessageId: "suspect"})
		for range 2 { // simulates two crashes of a worker
			conn := r.another()
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := ch.Get("work", false); err != nil || !ok {
				t.Fatalf("cannot get message: %t, %v", ok, err)
			}
			_ = conn.Close()
			time.Sleep(time.Second)
		}
		conn := r.another() // holds the message until a burst gathers
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := ch.Get("work", false); err != nil || !ok {
			t.Fatalf("cannot get message: %t, %v", ok, err)
		}
		var running, handled atomic.Int32
		h := reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if running.Add(1) > 1 {
				t.Errorf("message %s must not be processed concurrently with another", m.MessageID)
			}
			defer running.Add(-1)
			if m.MessageID == "suspect" {
				time.Sleep(time.Minute)
			}
			handled.Add(1)
			return nil
		})
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h, Concurrency: 2, Debounce: &reprise.Debounce{Window: 10 * time.Second, Key: reprise.ContentKey}})
		r.publish("", "work", amqp.Publishing{MessageId: "innocent", Body: []byte("b")})
		time.Sleep(time.Second)
		_ = conn.Close()
		time.Sleep(5 * time.Minute)
		if n := handled.Load(); n != 2 {
			t.Errorf("handled messages: got %d, want 2", n)
		}
	})
}

// The header that counts crashes on classic queues does not influence the route, which depends only on the work queue.
func TestForgedOriginDoesNotChangeRoute(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		h := newScript(func(*reprise.Delivery) error { return errScripted })
		start(t, dial(), reprise.WorkerConfig{
			Queue: "work", Handler: h, CrashLimit: 3, Policy: quick(2),
			Strategy: topology.Strategy{Route: topology.MessageTTL{WaitAddress: topology.Address{Key: "{queue}.wait"}}},
		})
		for _, forged := range []any{
			amqp.Table{"count": int64(1)},
			amqp.Table{"count": int64(1), "exchange": "amq.topic", "routing-key": "victim.key"},
			"bogus", int64(7),
		} {
			r.publish("", "work", amqp.Publishing{Headers: amqp.Table{reprise.HeaderCrashes: forged}})
		}
		time.Sleep(time.Hour)
		if n := r.depth("work.failed"); n != 4 {
			t.Errorf("parked messages: got %d, want 4", n)
		}
		if n := h.count(); n != 8 {
			t.Errorf("got %d attempts, want 8", n)
		}
	})
}
