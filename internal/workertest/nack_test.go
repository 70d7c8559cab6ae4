package workertest

import (
	"errors"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A full queue rejects a message immediately, and a quorum queue confirms a message later. RabbitMQ then acknowledges all
// messages up to a delivery tag. This ack does not apply to messages that RabbitMQ has already rejected.
func TestLaterAckDoesNotConfirmNackedMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		queue := queueFor(t, r, c, topology.Table{"x-queue-type": "quorum"})
		full := queueFor(t, r, c, topology.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: full}); err != nil {
			t.Fatal(err)
		}
		const n = 500
		err := c.PublishBatch(t.Context(), numbered(n, func(i int) (string, string) {
			if i%5 == 0 {
				return "", full
			}
			return "", queue
		}))
		failed, ok := errors.AsType[*reprise.BatchError](err)
		if !ok || len(failed.Failed) != n/5 {
			t.Fatalf("got %v, want BatchError", err)
		}
		for _, f := range failed.Failed {
			if f.Index%5 != 0 || !errors.Is(f, reprise.ErrNacked) {
				t.Errorf("message %d: got %v, want ErrNacked, and only for every fifth message", f.Index, f.Err)
			}
		}
		if stored := r.depth(full); stored != 1 {
			t.Errorf("full queue has %d messages, want 1", stored)
		}
	})
}
