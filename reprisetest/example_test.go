package reprisetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// till is the program under test: a cash register.
type till struct{ closedUntil time.Time }

func (t *till) Charge(_ context.Context, m *reprise.Delivery) error {
	if time.Now().Before(t.closedUntil) {
		return errors.New("the till is closed")
	}
	return nil
}

// worker returns the worker configuration that the program uses in production, including the queue and the retries.
func (t *till) worker() reprise.WorkerConfig {
	return reprise.WorkerConfig{
		Queue:   "orders",
		Handler: reprise.HandlerFunc(t.Charge),
		Policy:  reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(4 * time.Hour)},
		Topology: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
			Bindings:  []topology.Binding{{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"}},
		},
	}
}

// The till is closed for ten hours, which the test simulates in three milliseconds.
func Example() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		till := &till{closedUntil: time.Now().Add(10 * time.Hour)}
		w := b.Work(t, till.worker())
		b.Publish(t, &reprise.Message{Exchange: "shop", RoutingKey: "order.new", Body: []byte(`{"order": 17}`)})
		b.Drain(t)

		for _, a := range w.Attempts() {
			fmt.Println("attempt", a.Delivery.Attempt, "at", a.Began.UTC().Format("15:04"), "error:", a.Err)
		}
		fmt.Println("delays:", w.Attempts().Delays())
		fmt.Println("parked:", len(b.Parked(t, "orders")))
	})
	// Output:
	// attempt 1 at 00:00 error: the till is closed
	// attempt 2 at 04:00 error: the till is closed
	// attempt 3 at 08:00 error: the till is closed
	// attempt 4 at 12:00 error: <nil>
	// delays: [4h0m0s 4h0m0s 4h0m0s]
	// parked: 0
}
