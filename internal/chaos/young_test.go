package chaos

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The only node is killed immediately after the first retry. It loses the new wait queue with the copy, but the message is retried.
func TestWorkerSurvivesKillAfterFirstRetry(t *testing.T) {
	testkit.DistrustNewQueues(t)
	testkit.WithNode(t, func(t *testing.T, c *testkit.Cluster) {
		done, handled := context.WithCancel(context.Background())
		f := &firstRetry{retried: make(chan struct{}), handled: handled}
		client, err := reprise.Dial(t.Context(), c.URL(), &reprise.Config{
			Observer: f, Reconnect: backoff.Exponential{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond},
		})
		if err != nil {
			t.Fatal(err)
		}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: "young", Handler: f, Policy: reprise.Policy{Backoff: backoff.Fixed(10 * time.Second)},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(context.Background()) }()
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := errors.Join(worker.Shutdown(ctx), <-ended, client.Close(ctx)); err != nil {
				t.Error(err)
			}
		}()
		// The declaration of the wait queue makes the node store the names of the older queues.
		testkit.Eventually(t, timeout, func() error {
			return client.Publish(t.Context(), &reprise.Message{RoutingKey: "young"})
		})
		await(t, f.retried, "the message was not retried")
		c.Kill(c.Nodes[0])
		c.Start(c.Nodes[0])
		await(t, done.Done(), "the message was lost")
	})
}

func await(t *testing.T, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Fatal(otherwise)
	}
}

// firstRetry fails the first attempt before the node is killed.
type firstRetry struct {
	retried chan struct{}
	handled func()
}

func (f *firstRetry) Handle(context.Context, *reprise.Delivery) error {
	select {
	case <-f.retried:
		f.handled()
		return nil
	default:
		return errors.New("simulated failure")
	}
}

// Observe implements reprise.Observer.
func (f *firstRetry) Observe(e reprise.Event) {
	if e.Kind == reprise.EventRetried {
		close(f.retried)
	}
}
