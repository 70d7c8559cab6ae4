package archive_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

// This program archives the messages of the queue orders.failed and serves the console. To run it outside of a test, use
// the URL of your broker, and http.ListenAndServe("127.0.0.1:15600", a.Handler()) in place of the test server.
func Example() {
	dir, inMemory := environment()
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())

	db, err := sql.Open("sqlite", filepath.Join(dir, "failed.db"))
	must(err)
	a, err := archive.Open(ctx, archive.Config{DB: db, Dialect: archive.SQLite, Queues: []string{"orders.failed"}})
	must(err)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@localhost/", inMemory)
	must(err)
	a.Connect(client)
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	server := httptest.NewServer(a.Handler())

	answer, err := http.Get(server.URL + "/api/v1/me")
	must(err)
	text, err := io.ReadAll(answer.Body)
	must(err)
	fmt.Print(string(text))

	stop()
	must(<-ended)
	server.Close()
	must(client.Close(context.Background()))
	must(db.Close())
	// Output: {"actor":"local","role":"admin"}
}

// environment returns a new directory, and a configuration for a broker in this process.
func environment() (dir string, inMemory *reprise.Config) {
	dir, err := os.MkdirTemp("", "archive")
	must(err)
	b, err := broker.New(broker.Config{})
	must(err)
	return dir, &reprise.Config{Dial: b.DialContext}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A program that uses the library compares its workers with the broker before it starts them. Here the queue orders exists from an
// earlier version of the program.
func ExampleManagement_Differences() {
	b, err := broker.New(broker.Config{})
	must(err)
	server := httptest.NewServer(b.Management())
	defer server.Close()
	ctx := context.Background()
	client, err := reprise.Dial(ctx, "amqp://guest:guest@localhost/", &reprise.Config{Dial: b.DialContext})
	must(err)
	defer client.Close(ctx)
	must(client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: "orders", Args: topology.Table{"x-queue-type": "quorum"}}}}))

	management := &archive.Management{URL: server.URL, User: "guest", Password: "guest"}
	differences, err := management.Differences(ctx, reprise.WorkerConfig{
		Queue: "orders",
		Topology: topology.Topology{
			Queues:    []topology.Queue{{Name: "orders", Args: topology.Table{"x-queue-type": "quorum", "x-max-length": int64(100_000)}}},
			Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
			Bindings:  []topology.Binding{{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"}},
		},
	})
	must(err)
	for _, d := range differences {
		fmt.Println(d)
	}
	// Output:
	// change queue orders: x-max-length is not set (declared: 100000)
	// create exchange shop
	// create queue orders.failed
	// create binding shop → orders, key order.*
}
