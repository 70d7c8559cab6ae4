package claimcheck_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/topology"
)

// The queue contains a reference to the body, and the handler receives the body.
func ExampleCheck() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(dir), Threshold: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	b, _ := broker.New(broker.Config{})
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext, BeforePublish: check.BeforePublish})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	done := make(chan struct{})
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:      "scans",
		Middleware: []reprise.Middleware{check.Middleware},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Println("handled:", len(m.Body), "bytes")
			close(done)
			return nil
		}),
	})
	if err == nil {
		err = client.Declare(ctx, topology.Buckets{}.Topology("scans"))
	}
	m := &reprise.Message{RoutingKey: "scans", Body: []byte(strings.Repeat("large ", 1000))}
	if err == nil {
		err = client.Publish(ctx, m)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("published: %.60s…\n", m.Body)
	go worker.Run(ctx)
	<-done
	_ = worker.Shutdown(ctx)
	// Output:
	// published: offloaded body of 6000 bytes, sha256 5a63861faa6549b387cb770…
	// handled: 6000 bytes
}
