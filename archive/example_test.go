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
