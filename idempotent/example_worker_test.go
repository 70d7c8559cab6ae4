package idempotent_test

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/topology"
)

// A publisher misses a confirm and publishes the message again. The worker handles it once.
func Example_worker() {
	ctx := context.Background()
	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	if err := client.Declare(ctx, topology.Buckets{}.Topology("orders")); err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range []string{"7f3a", "7f3a", "81c0"} {
		if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", MessageID: id}); err != nil {
			fmt.Println(err)
			return
		}
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	store := new(idempotent.Memory) // shared by all workers of the process
	once, err := idempotent.Middleware(store, idempotent.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:      "orders",
		Middleware: []reprise.Middleware{once, reprise.Timeout(time.Minute)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Println("charged for", m.MessageID)
			if m.MessageID == "81c0" {
				stop() // this is the last message
			}
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stopped:", worker.Run(running))
	// Output:
	// charged for 7f3a
	// charged for 81c0
	// stopped: <nil>
}
