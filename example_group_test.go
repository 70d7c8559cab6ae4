package reprise_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

// This program has two workers and a server for health checks. When the context is canceled, the server stops before the
// workers. A real program uses signal.NotifyContext. Add a failed.Ingest and a failed.Replayer in the same way.
func ExampleGroup() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	b, err := broker.New(broker.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(context.Background())
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker := func(queue string, handle reprise.HandlerFunc) *reprise.Worker {
		w, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: queue, Handler: handle})
		if err != nil {
			panic(err)
		}
		return w
	}
	orders := worker("orders", func(_ context.Context, m *reprise.Delivery) error {
		fmt.Printf("charged %s\n", m.Body)
		return client.Publish(ctx, &reprise.Message{RoutingKey: "mails", Body: m.Body})
	})
	mails := worker("mails", func(_ context.Context, m *reprise.Delivery) error {
		fmt.Printf("mailed %s\n", m.Body)
		stop()
		return nil
	})
	for _, queue := range []string{"orders", "mails"} {
		if err := client.Declare(ctx, topology.Buckets{}.Topology(queue)); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")}); err != nil {
		fmt.Println(err)
		return
	}

	health := &http.Server{Addr: "127.0.0.1:0", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := errors.Join(orders.Healthy(r.Context()), mails.Status().Err); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})}
	var g reprise.Group
	g.Add(orders, mails)
	g.Add(reprise.Server(health))
	err = g.Run(ctx)
	fmt.Println("stopped:", errors.Join(err, client.Close(context.Background())))
	// Output:
	// charged order 17
	// mailed order 17
	// stopped: <nil>
}
