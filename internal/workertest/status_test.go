package workertest

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Consuming reports the state of a worker at any time, even before Run and after the worker has stopped.
func TestWorkerHealth(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		h := newScript(nil)
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Healthy(t.Context()); !errors.Is(err, reprise.ErrNotConsuming) {
			t.Errorf("worker before Run: got %v, want ErrNotConsuming", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		testkit.Eventually(t, timeout, func() error { return w.Healthy(t.Context()) })

		proxy.Refuse()
		proxy.Cut()
		testkit.Eventually(t, timeout, func() bool { return errors.Is(w.Status().Err, reprise.ErrNotConsuming) })
		proxy.Resume()
		testkit.Eventually(t, timeout, func() error { return w.Healthy(t.Context()) })

		r.publish("", queue, amqp.Publishing{})
		h.wait(t, 1)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.Healthy(t.Context()); !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("stopped worker: got %v, want ErrClosed", err)
		}
	})
}

// A worker that was shut down before Run counts as stopped.
func TestHealthOfUnstartedWorkerAfterShutdown(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		c := dial()
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: newScript(nil)})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Shutdown(t.Context()), w.Run(t.Context())); err != nil {
			t.Error(err)
		}
		if err := w.Status().Err; !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("stopped worker: got %v, want ErrClosed", err)
		}
	})
}

// Consuming reports no error during an intentional pause, even if the connection was lost and recovered during the pause.
func TestHealthOfPausedWorkerAfterReconnect(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var mu sync.Mutex
		var conns []net.Conn
		c := dial(func(c *reprise.Config) {
			memory := c.Dial
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := memory(ctx, network, addr)
				mu.Lock()
				defer mu.Unlock()
				conns = append(conns, conn)
				return conn, err
			}
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
			Queue:   "work",
			Handler: newScript(func(*reprise.Delivery) error { return reprise.PauseFor(time.Hour, errScripted) }),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		r.publish("", "work", amqp.Publishing{})
		time.Sleep(time.Minute)
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		if err := w.Status().Err; err != nil {
			t.Errorf("Consuming of a paused worker: %v", err)
		}
		if err := errors.Join(w.Shutdown(t.Context()), <-ended); err != nil {
			t.Error(err)
		}
	})
}

// If a worker has started but does not consume yet, the error of Consuming does not state that Run was not called.
func TestHealthOfStartingWorker(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		c := dial(slowToConsume)
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: newScript(nil)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		if err := w.Status().Err; !errors.Is(err, reprise.ErrNotConsuming) || strings.Contains(err.Error(), "not called") {
			t.Errorf("starting worker: got %v, want ErrNotConsuming", err)
		}
		time.Sleep(10 * time.Second)
		if err := w.Status().Err; err != nil {
			t.Errorf("Consuming of a consuming worker: %v", err)
		}
		if err := errors.Join(w.Shutdown(t.Context()), <-ended); err != nil {
			t.Error(err)
		}
	})
}
