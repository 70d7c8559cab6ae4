package reprisetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
)

// With the default Policy, a downstream outage of one night does not exhaust the retries of a message.
func TestDefaultPolicySurvivesOutageOfOneNight(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		morning := time.Now().Add(12 * time.Hour)
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
			if time.Now().Before(morning) {
				return errors.New("503 service unavailable")
			}
			return nil
		})})
		for range 100 {
			b.Publish(t, &reprise.Message{RoutingKey: "orders"})
		}
		b.Drain(t)
		if n := len(b.Parked(t, "orders")); n != 0 {
			t.Errorf("parked messages: got %d after %v, want 0", n, w.Attempts().Delays())
		}
		if late := time.Since(morning); late > 2*time.Hour {
			t.Errorf("last message succeeded %s after the end of the outage, want at most 2h", late)
		}
	})
}

// With the default Policy, a message that always fails is parked after about a day. The worker creates at
// most ten queues, regardless of the number of failed messages.
func TestDefaultPolicyRetriesForADayInFewQueues(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		began := time.Now()
		b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
			return errors.New("422 unprocessable")
		})})
		const messages = 50
		for range messages {
			b.Publish(t, &reprise.Message{RoutingKey: "orders"})
		}
		b.Drain(t)
		if n := len(b.Parked(t, "orders")); n != messages {
			t.Errorf("%d messages were parked, want %d", n, messages)
		}
		if took := time.Since(began); took < 24*time.Hour || took > 26*time.Hour {
			t.Errorf("last message was parked after %s, want 24h to 26h", took)
		}
		if queues := b.Queues(); len(queues) > 10 {
			t.Errorf("broker has %d queues, want at most 10: %v", len(queues), queues)
		}
	})
}
