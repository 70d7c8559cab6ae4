package limit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/limit"
)

// A process whose own attempts use its whole share waits for them, however long they run. The test runs in virtual time.
func TestWaitForOwnAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Shutdown(context.Background())
		client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		l := shared(t, client, limit.Config{Name: "exports", Concurrency: 1})
		defer l.Close()
		if err := l.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want to wait until the deadline", err)
		}
		l.Done()
		if err := l.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
