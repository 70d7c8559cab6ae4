package workertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Run returns nil if Shutdown is called while the worker waits for a connection.
func TestShutdownWithoutConnection(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, cfg := range map[string]reprise.WorkerConfig{
			"plain":   {},
			"lanes":   {Lanes: 2},
			"ordered": {OrderBy: &reprise.Keyed{Partitions: 2}},
		} {
			if cfg.OrderBy != nil && b.IsRabbitMQ && b.Version < "4" {
				continue // OrderBy requires RabbitMQ 4.0, and the worker may find this out on the connection that it is losing
			}
			proxy := testkit.NewProxy(t, b.URL)
			c := dial(t, proxy.URL())
			proxy.Refuse()
			proxy.Cut()
			testkit.Eventually(t, timeout, func() error {
				if c.Healthy(t.Context()) == nil {
					return errors.New("still connected")
				}
				return nil
			})
			cfg.Queue = testkit.Name(t, "work")
			cfg.Handler = reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })
			w, err := reprise.NewWorker(c.Client, cfg)
			if err != nil {
				t.Fatal(err)
			}
			before, ended := w.Status().Err, make(chan error, 1)
			go func() { ended <- w.Run(context.WithoutCancel(t.Context())) }()
			testkit.Eventually(t, timeout, func() error {
				if err := w.Status().Err; err == nil || err.Error() == before.Error() {
					return fmt.Errorf("the status is still %w", err)
				}
				return nil
			})
			if err := w.Shutdown(t.Context()); err != nil {
				t.Errorf("%s: Shutdown: %v", name, err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: Run: %v", name, err)
			}
		}
	})
}
