package reprise_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
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
	// parked: reprise: no route matches the key "order.returned" (the Mux has the patterns ["order.placed" "order.cancelled"])
}

// OrderPlaced is published with the type "order.placed".
type OrderPlaced struct{ ID int }

func (OrderPlaced) MessageType() string { return "order.placed" }

// PublishJSON sets the body, the content type and the type of the message.
func ExampleClient_PublishJSON() {
	ctx := context.Background()
	b, _ := broker.New(broker.Config{})
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	err = client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &reprise.Message{RoutingKey: "orders"}
	if err := client.PublishJSON(ctx, m, OrderPlaced{ID: 17}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Type, m.ContentType, string(m.Body))
	// Output: order.placed application/json {"ID":17}
}

// xmlCodec is a Codec of another encoding.
type xmlCodec struct{}

func (xmlCodec) Marshal(v any) ([]byte, error)      { return xml.Marshal(v) }
func (xmlCodec) Unmarshal(body []byte, v any) error { return xml.Unmarshal(body, v) }
func (xmlCodec) ContentType() string                { return "application/xml" }

// The handler gets the value that the publisher has encoded.
func ExampleTyped() {
	done := make(chan struct{})
	m := &reprise.Message{}
	if err := m.Encode(xmlCodec{}, OrderPlaced{ID: 17}); err != nil {
		fmt.Println(err)
		return
	}
	runMessages(reprise.Config{}, reprise.WorkerConfig{
		Queue: "orders",
		Handler: reprise.Typed(xmlCodec{}, func(_ context.Context, v OrderPlaced, m *reprise.Delivery) error {
			fmt.Println(m.Type, v.ID, string(m.Body))
			close(done)
			return nil
		}),
	}, done, m)
	// Output: order.placed 17 <OrderPlaced><ID>17</ID></OrderPlaced>
}

// The function inserts up to three orders together. Each order succeeds or fails alone.
func ExampleBatch() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.Batch(3, 100*time.Millisecond, func(_ context.Context, batch []*reprise.Delivery) []error {
			errs := make([]error, len(batch))
			for i, m := range batch {
				o, err := reprise.Decode[OrderPlaced](reprise.JSONCodec{}, m) // an error of Decode parks the message
				if err == nil && o.ID == 18 && m.Attempt == 1 {
					err = errors.New("duplicate key")
				}
				errs[i] = err
				fmt.Printf("%d of %d: %s, attempt %d: %v\n", i+1, len(batch), m.Body, m.Attempt, err)
				if m.Attempt == 2 {
					close(done)
				}
			}
			return errs
		}),
	}, done, `{"id": 17}`, `{"id": 18}`, `order 19`)
	// Output:
	// 1 of 3: {"id": 17}, attempt 1: <nil>
	// 2 of 3: {"id": 18}, attempt 1: duplicate key
	// 3 of 3: order 19, attempt 1: reprise: cannot decode body as reprise_test.OrderPlaced: invalid character 'o' looking for beginning of value
	// 1 of 1: {"id": 18}, attempt 2: <nil>
}
