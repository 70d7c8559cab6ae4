package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// connect returns an in-process broker with the given queues, and a client of it.
func connect(ctx context.Context, queues ...string) (*broker.Broker, *reprise.Client) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		panic(err)
	}
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		panic(err)
	}
	for _, queue := range queues {
		if err := client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: queue}}}); err != nil {
			panic(err)
		}
	}
	return b, client
}

// A worker parks a message that it cannot process, the archive stores the message, and a replay sends it after the
// cause is fixed.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	b, client := connect(ctx, "orders")
	defer b.Shutdown(context.Background())
	defer client.Close(context.Background())

	mended := false
	done := make(chan string)
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: "orders",
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if !mended {
				return reprise.Park(errors.New("no such customer: 4711"))
			}
			done <- fmt.Sprintf("%s, attempt %d", m.Body, m.Attempt)
			return nil
		}),
	})
	must(err)
	go worker.Run(ctx)

	dir, err := os.MkdirTemp("", "failed")
	must(err)
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", filepath.Join(dir, "failed.db"))
	must(err)
	defer db.Close()
	archive, err := store.Open(ctx, db, store.Config{Dialect: store.SQLite})
	must(err)
	ingest, err := ingest.New(client, archive, ingest.Config{Queues: []string{"orders.failed"}})
	must(err)
	go ingest.Run(ctx)
	replayer := replay.New(client, archive, replay.Config{})
	go replayer.Run(ctx)

	must(client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")}))
	var list []failed.Summary
	for len(list) == 0 {
		time.Sleep(time.Millisecond)
		list, _, err = archive.List(ctx, failed.Filter{States: []failed.State{failed.Failed}}, store.Page{})
		must(err)
	}
	fmt.Println(list[0].Queue, "-", list[0].Error)

	mended = true
	_, err = archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{Group: list[0].Group}}, "cli:root")
	must(err)
	replayer.Wake()
	fmt.Println(<-done)
	// Output:
	// orders - no such customer: 4711
	// order 17, attempt 1
}

// Redrive works without an archive. It moves all messages of the failed queue to the queue in which they failed.
func ExampleRedrive() {
	ctx := context.Background()
	b, client := connect(ctx, "orders", "orders.failed")
	defer b.Shutdown(ctx)
	defer client.Close(ctx)
	for i := range 3 {
		must(client.Publish(ctx, &reprise.Message{
			RoutingKey: "orders.failed", Body: fmt.Append(nil, "order ", i),
			Headers: map[string]any{topology.HeaderQueue: "orders", topology.HeaderAttempts: int64(10)},
		}))
	}

	found, sent, err := replay.Redrive(ctx, client, replay.RedriveConfig{From: "orders.failed"})
	fmt.Printf("%d of %d sent, %v\n", sent, found, err)

	depth, err := client.Depth(ctx, "orders")
	fmt.Println(depth, "in orders", err)
	// Output:
	// 3 of 3 sent, <nil>
	// 3 in orders <nil>
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
