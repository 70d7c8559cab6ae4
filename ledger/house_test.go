package ledger_test

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/ledger"
	"github.com/reprisemq/reprise/reprisetest"
)

// house is the environment of a ledger in virtual time: a broker, a worker's book, an archive, and the ledger, with a
// sample every 15 s.
type house struct {
	*reprisetest.Broker
	file    string
	db      *sql.DB
	archive *failed.Archive
	ledger  *ledger.Ledger
	client  *reprise.Client // client of the workers, with a book
}

// runHouse runs a test in a house with the account orders.
func runHouse(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		h := &house{Broker: b}
		h.file = filepath.Join(t.TempDir(), "test.db")
		h.db = openFile(t, h.file)
		h.client = b.Client(t, &reprise.Config{Observer: h.book(t, h.db, "worker 1")})
		var err error
		if h.archive, err = failed.Open(t.Context(), h.db, failed.Config{Dialect: failed.SQLite}); err != nil {
			t.Fatal(err)
		}
		if h.ledger, err = ledger.Open(t.Context(), h.db, ledger.Config{Dialect: failed.SQLite}); err != nil {
			t.Fatal(err)
		}
		run(t, func(ctx context.Context) error {
			h.ledger.Run(ctx, ledger.Sources{Broker: inMemory(b), Archive: h.archive}, func() []ledger.Account {
				return []ledger.Account{{Work: []string{"orders"}}}
			})
			return nil
		})
		test(t, h)
	})
}

func openFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// book returns a book that is written until t ends.
func (h *house) book(t *testing.T, db *sql.DB, process string) *ledger.Book {
	t.Helper()
	book, err := ledger.NewBook(db, ledger.BookConfig{Dialect: failed.SQLite, Process: process})
	if err != nil {
		t.Fatal(err)
	}
	run(t, book.Run)
	return book
}

// run runs f until t ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Log(err)
		}
	})
}

// inMemory is the management API of a broker without a socket.
func inMemory(b *reprisetest.Broker) *ledger.Management {
	return &ledger.Management{URL: "http://broker", User: "guest", Password: "guest", Client: &http.Client{Transport: handlerTransport{b.Server().Management()}}}
}

type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// orders runs a worker of the queue with a handler.
func (h *house) orders(t *testing.T, f reprise.HandlerFunc, options ...func(*reprise.WorkerConfig)) *reprisetest.Worker {
	t.Helper()
	cfg := reprise.WorkerConfig{Queue: "orders", Handler: f, Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)}}
	for _, o := range options {
		o(&cfg)
	}
	return h.WorkWith(t, h.client, cfg)
}

func (h *house) publish(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		h.Publish(t, &reprise.Message{RoutingKey: "orders", Body: []byte(body)})
	}
}

// line waits until the samples show the current state, and returns the account orders.
func (h *house) line(t *testing.T) ledger.Line {
	t.Helper()
	time.Sleep(time.Minute)
	report, err := h.ledger.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Accounts {
		if l.Name == "orders" {
			return l
		}
	}
	t.Fatalf("there is no account of orders: %+v", report)
	return ledger.Line{}
}

// channel returns a channel of another program.
func (h *house) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	c, err := amqp.DialConfig(h.URL(), amqp.Config{Heartbeat: time.Hour, Dial: func(network, addr string) (net.Conn, error) {
		return h.DialContext(context.Background(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
