package staking_test

import (
	"context"
	"errors"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/reprisetest"
)

// A worker without the preset can replace the workers of an existing queue. It also processes the messages from the
// delay queue, and continues their count.
func TestWorkerWithoutPresetContinuesCount(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		down := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errors.New("down") })
		old := b.Work(t, reprise.WorkerConfig{Queue: "btc_info_queue", Handler: down, Strategy: staking.Design{}.Strategy()})
		b.Publish(t, &reprise.Message{RoutingKey: "btc_info_queue", Body: []byte("{}")})
		old.Await(t, 2)
		must(t, old.Stop())

		w := b.Work(t, reprise.WorkerConfig{Queue: "btc_info_queue", Handler: down, Policy: reprise.Policy{MaxAttempts: 4}})
		b.Drain(t)
		if got := w.Attempts(); len(got) != 2 || got[0].Delivery.Attempt != 3 || len(got[0].Delivery.Errors) != 2 {
			t.Errorf("attempts: got %+v, want 2, the first of them attempt 3 with 2 errors", got)
		}
		if n := len(b.Messages(t, "btc_info_queue.failed")); n != 1 {
			t.Errorf("parked messages: got %d, want 1", n)
		}
	})
}
