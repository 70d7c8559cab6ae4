package reprise_test

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker says whether it consumes, from before it runs to after it has ended.
func TestWorkerHealth(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		h := newScript(func(m *reprise.Message) error {
			if m.Attempt == 1 {
				return reprise.PauseFor(time.Second, errScripted)
			}
			return nil
		})
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Healthy(t.Context()); !errors.Is(err, reprise.ErrNotConsuming) {
			t.Errorf("not running yet, and %v", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		testkit.Eventually(t, patience, func() error { return w.Healthy(t.Context()) })

		proxy.Refuse()
		proxy.Cut()
		testkit.Eventually(t, patience, func() bool { return errors.Is(w.Consuming(), reprise.ErrNotConsuming) })
		proxy.Resume()
		testkit.Eventually(t, patience, func() error { return w.Healthy(t.Context()) })

		r.publish("", queue, amqp.Publishing{})
		c.log.wait(t, "paused", 1)
		if err := w.Consuming(); err != nil {
			t.Errorf("a pause is no fault: %v", err)
		}
		h.wait(t, 2)
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.Healthy(t.Context()); !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("ended, and %v", err)
		}
	})
}

// One that was shut down before it ran has ended.
func TestHealthOfAWorkerThatNeverRan(t *testing.T) {
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, _ *raw) {
		c := dial()
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", Handler: newScript(nil)})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Shutdown(t.Context()), w.Run(t.Context())); err != nil {
			t.Error(err)
		}
		if err := w.Consuming(); !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("ended, and %v", err)
		}
	})
}
