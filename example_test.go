package reprise_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

// A handler fails twice before it succeeds, on a broker inside this process.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(ctx)

	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)

	// The worker would also declare the queue, but the program publishes the first message before the worker runs.
	if err := client.Declare(ctx, topology.Buckets{}.Topology("orders")); err != nil {
		fmt.Println(err)
		return
	}

	done := make(chan struct{})
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(10 * time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Printf("attempt %d of %s, %d errors so far\n", m.Attempt, m.Body, len(m.Errors))
			if m.Attempt < 3 {
				return errors.New("the till is busy")
			}
			close(done)
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	running := make(chan error, 1)
	go func() { running <- worker.Run(ctx) }()
	if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 1")}); err != nil {
		fmt.Println(err)
	}
	<-done
	if err := worker.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-running)
	// Output:
	// attempt 1 of order 1, 0 errors so far
	// attempt 2 of order 1, 1 errors so far
	// attempt 3 of order 1, 2 errors so far
	// <nil>
}
