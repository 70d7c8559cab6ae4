package workertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestHealthy(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL())
		if err := c.Healthy(t.Context()); err != nil {
			t.Errorf("connected client: %v", err)
		}
		proxy.Refuse()
		proxy.Cut()
		c.log.wait(t, "connect failed", 2)
		err := c.Healthy(t.Context())
		if !errors.Is(err, reprise.ErrDisconnected) || !strings.Contains(err.Error(), proxy.Addr()) {
			t.Errorf("disconnected client: got %v, want ErrDisconnected", err)
		}
		proxy.Resume()
		testkit.Eventually(t, timeout, func() error { return c.Healthy(t.Context()) })
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Healthy(t.Context()); !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("closed client: got %v, want ErrClosed", err)
		}
	})
}

// A connection may stay open although the broker no longer responds.
func TestHealthyFailsWithoutResponse(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, which := range map[string]int32{"publishing": publishes, "consuming": consumes} {
			t.Run(name, func(t *testing.T) {
				var reading sync.RWMutex
				c := dial(t, b.URL, dialBlockable(&reading, which))
				if err := c.Healthy(t.Context()); err != nil {
					t.Errorf("client that receives responses: %v", err)
				}
				reading.Lock()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err := c.Healthy(ctx)
				cause := errors.New("probe was canceled")
				cancelled, cancelCause := context.WithCancelCause(t.Context())
				cancelCause(cause)
				if err := c.Healthy(cancelled); !errors.Is(err, cause) || errors.Is(err, reprise.ErrDisconnected) {
					t.Errorf("canceled probe: got %v, want the cause without ErrDisconnected", err)
				}
				reading.Unlock()
				if !errors.Is(err, reprise.ErrDisconnected) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer") {
					t.Errorf("client that receives no responses: got %v, want ErrDisconnected and DeadlineExceeded", err)
				}
				testkit.Eventually(t, timeout, func() error { return c.Healthy(t.Context()) })
			})
		}
	})
}
