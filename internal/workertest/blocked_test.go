package workertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// alarmConn is a client connection into which a test can inject memory alarms, between the frames of the broker.
type alarmConn struct{ *relayConn }

func newAlarmConn(conn net.Conn) *alarmConn {
	return &alarmConn{relay(conn, func(frame []byte) []byte { return frame })}
}

// inject sends connection.blocked with a reason, or connection.unblocked if reason is "".
// https://www.rabbitmq.com/docs/connection-blocked
func (a *alarmConn) inject(t testing.TB, reason string) {
	t.Helper()
	method := []byte{0, 10, 0, 61}
	if reason != "" {
		method = append([]byte{0, 10, 0, 60, byte(len(reason))}, reason...)
	}
	frame := binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(method)))
	if _, err := a.out.Write(bytes.Join([][]byte{frame, method, {0xCE}}, nil)); err != nil {
		t.Fatal(err)
	}
}

// dialAlarmed returns a client and its publishing connection, which the test can block.
func dialAlarmed(t *testing.T, b testkit.Target, options ...func(*reprise.Config)) (client, *alarmConn) {
	t.Helper()
	var publishing *alarmConn
	var dials atomic.Int32
	c := dial(t, b.URL, append(options, func(c *reprise.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil && dials.Add(1) == publishes {
				publishing = newAlarmConn(conn)
				return publishing, nil
			}
			return conn, err
		}
	})...)
	return c, publishing
}

const lowOnMemory = "low on memory"

// Publishing waits while the connection is blocked, and then continues automatically.
func TestPublishWaitsWhileConnectionIsBlocked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, publishing := dialAlarmed(t, b)
		queue := queueFor(t, r, c, nil)
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		err := c.Healthy(t.Context())
		if e, ok := errors.AsType[*reprise.BlockedError](err); !ok || e.Reason != lowOnMemory || !errors.Is(err, reprise.ErrBlocked) {
			t.Errorf("Healthy: got %v, want BlockedError", err)
		}
		published := make(chan error, 2)
		go func() { published <- c.Publish(t.Context(), &reprise.Message{RoutingKey: queue}) }()
		go func() {
			published <- c.PublishBatch(t.Context(), numbered(10, func(int) (string, string) { return "", queue }))
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := c.Publish(ctx, &reprise.Message{RoutingKey: queue}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("canceled Publish: got %v, want DeadlineExceeded without ErrUnconfirmed", err)
		}
		if depth := r.depth(queue); depth != 1 {
			t.Errorf("%d messages were published, want 1", depth)
		}
		publishing.inject(t, "")
		for range 2 {
			if err := <-published; err != nil {
				t.Error(err)
			}
		}
		if depth := r.depth(queue); depth != 12 {
			t.Errorf("%d messages were published, want 12", depth)
		}
		if err := c.Healthy(t.Context()); err != nil {
			t.Errorf("Healthy: %v", err)
		}
	})
}

// If a publish times out on a blocked connection, the error contains the reason for the block, and reports whether the
// message was sent.
func TestBlockedPublishTimesOut(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, publishing := dialAlarmed(t, b, func(c *reprise.Config) { c.ConfirmTimeout = 500 * time.Millisecond })
		queue := r.declareQueue()
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		err := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue})
		if e, ok := errors.AsType[*reprise.BlockedError](err); !ok || e.Reason != lowOnMemory || errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("unsent message: got %v, want a BlockedError without ErrUnconfirmed", err)
		}
		err = c.PublishBatch(t.Context(), numbered(10, func(int) (string, string) { return "", queue }))
		if failed, ok := errors.AsType[*reprise.BatchError](err); !ok || len(failed.Failed) != 10 || !errors.Is(err, reprise.ErrBlocked) || errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("unsent batch: got %v, want 10 failures with ErrBlocked and without ErrUnconfirmed", err)
		}
		publishing.inject(t, "")
		c.log.wait(t, "publishing unblocked", 1)
		if depth := r.depth(queue); depth != 0 {
			t.Errorf("%d messages were published, want 0", depth)
		}
	})
}

// A broker with a memory alarm blocks the connection at the first publish. Later, the broker may store messages that it has
// already received. The test does not use virtual time: it would stop while a lock waits for a blocked connection without a
// buffer.
func TestAlarmDuringPublish(t *testing.T) {
	t.Parallel()
	b, _ := testkit.EmbeddedManaged(t, broker.Config{MemoryLimit: 10_000})
	r, hogger := newRaw(t, b.URL), dial(t, b.URL)
	c := dial(t, b.URL, func(c *reprise.Config) { c.ConfirmTimeout = 2 * time.Second })
	queue, hog := r.declareQueue(), r.declareQueue()
	if err := hogger.Publish(t.Context(), &reprise.Message{RoutingKey: hog, Body: make([]byte, 20_000)}); err != nil {
		t.Fatal(err)
	}
	first := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue})
	if !errors.Is(first, reprise.ErrUnconfirmed) || errors.Is(first, reprise.ErrBlocked) || !strings.Contains(first.Error(), lowOnMemory) {
		t.Errorf("sent message: got %v, want ErrUnconfirmed with the reason %q", first, lowOnMemory)
	}
	second := c.Publish(t.Context(), &reprise.Message{RoutingKey: queue})
	if errors.Is(second, reprise.ErrUnconfirmed) || !errors.Is(second, reprise.ErrBlocked) {
		t.Errorf("unsent message: got %v, want ErrBlocked without ErrUnconfirmed", second)
	}
	if err := c.Healthy(t.Context()); !errors.Is(err, reprise.ErrBlocked) {
		t.Errorf("Healthy: got %v, want ErrBlocked", err)
	}
	start(t, hogger, reprise.WorkerConfig{Queue: hog, Handler: newScript(func(*reprise.Delivery) error { return nil })})
	c.log.wait(t, "publishing unblocked", 1)
	testkit.Eventually(t, timeout, func() error {
		return c.Publish(t.Context(), &reprise.Message{RoutingKey: queue, MessageID: "last"})
	})
	if n := r.depth(queue); n != 2 {
		t.Errorf("%d messages are stored, want 2: the sent message and the message after the alarm", n)
	}
}

// A worker without running handlers stops although an alarm of the broker delays the copy of a failed message. The message
// stays in its queue.
func TestShutdownDoesNotWaitForEndOfAlarm(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c, publishing := dialAlarmed(t, b)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(*reprise.Delivery) error { return errScripted })
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, DrainTimeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		r.publish("", queue, amqp.Publishing{})
		h.wait(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if err := w.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if got := r.take(queue); !got.Redelivered {
			t.Error("message in the queue: got redelivered false, want true")
		}
		publishing.inject(t, "")
	})
}
