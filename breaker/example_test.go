package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

var errTillDown = errors.New("the till does not answer")

// While the till is down, the worker does not consume. The messages wait in the queue, and the wait does not count as
// an attempt. Other errors, such as a malformed order, do not open the breaker.
func Example() {
	till, err := breaker.New(breaker.Config{
		Failures: 2,
		OpenFor:  50 * time.Millisecond, // 30 * time.Second in a program
		Counts: func(err error) bool {
			return errors.Is(err, errTillDown)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := 0
	charge := func(_ context.Context, m *reprise.Delivery) error {
		if calls++; calls <= 2 {
			fmt.Println("the till is down")
			return errTillDown
		}
		fmt.Printf("charged %s\n", m.Body)
		return nil
	}

	// This example uses an embedded broker. A real program dials RabbitMQ.
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
	if err := client.Declare(ctx, topology.Buckets{}.Topology("orders")); err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 1")}); err != nil {
		fmt.Println(err)
		return
	}

	done := make(chan struct{})
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:    "orders",
		Breaker:  till,
		Strategy: topology.Strategy{Route: topology.Buckets{Base: 10 * time.Millisecond}},
		Policy:   reprise.Policy{Backoff: backoff.Fixed(10 * time.Millisecond)},
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			err := charge(ctx, m)
			if err == nil {
				close(done)
			}
			return err
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.Run(ctx); err != nil {
			fmt.Println(err)
		}
	})
	<-done
	_ = worker.Shutdown(ctx)
	running.Wait()
	// Output:
	// the till is down
	// the till is down
	// charged order 1
}
