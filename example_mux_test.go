package reprise_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// Each kind of message has its own handler. A route can have its own policy, and a limit of its running handlers. The message
// of an unknown kind is parked.
func ExampleMux() {
	type order struct{ ID int }
	done := make(chan struct{})
	var left atomic.Int32
	left.Store(3)
	observer := reprise.ObserverFunc(func(e reprise.Event) {
		if e.Kind == reprise.EventParked {
			fmt.Println("parked:", e.Err)
		}
		if e.Kind == reprise.EventDone || e.Kind == reprise.EventParked {
			if left.Add(-1) == 0 {
				close(done)
			}
		}
	})
	place := func(_ context.Context, o order, m *reprise.Delivery) error {
		fmt.Println("place order", o.ID)
		return nil
	}
	cancel := func(_ context.Context, o order, m *reprise.Delivery) error {
		fmt.Println("cancel order", o.ID, "attempt", m.Attempt)
		return errors.New("already delivered")
	}
	runMessages(reprise.Config{Observer: observer}, reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: &reprise.Mux{Routes: []reprise.Route{
			{Pattern: "order.placed", Handler: reprise.JSON(place)},
			{Pattern: "order.cancelled", Handler: reprise.JSON(cancel), Policy: reprise.Policy{MaxAttempts: 2}, Concurrency: 1},
		}},
	}, done,
		&reprise.Message{Type: "order.placed", Body: []byte(`{"id": 17}`)},
		&reprise.Message{Type: "order.cancelled", Body: []byte(`{"id": 18}`)},
		&reprise.Message{Type: "order.returned", Body: []byte(`{"id": 19}`)})
	// Unordered output:
	// place order 17
	// cancel order 18 attempt 1
	// cancel order 18 attempt 2
	// parked: already delivered
	// parked: reprise: no route matches the key "order.returned" (the Mux has the patterns order.placed, order.cancelled)
}
