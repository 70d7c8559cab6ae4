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
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/reprisetest"
)

// env is a ledger in virtual time with a broker, the book of a worker and an archive. The ledger takes a sample every
// 15 s.
type env struct {
	*reprisetest.Broker
	file    string
	db      *sql.DB
	archive *store.Archive
	ledger  *ledger.Ledger
	client  *reprise.Client // client of the workers, with a book
}

// runEnv runs a test with an env. The ledger has one account, orders.
func runEnv(t *testing.T, test func(t *testing.T, h *env)) {
	t.Helper()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		h := &env{Broker: b}
		h.file = filepath.Join(t.TempDir(), "test.db")
		h.db = openFile(t, h.file)
		h.client = b.Client(t, &reprise.Config{Observer: h.book(t, h.db, "worker 1")})
		var err error
		if h.archive, err = store.Open(t.Context(), h.db, store.Config{Dialect: store.SQLite}); err != nil {
			t.Fatal(err)
		}
		if h.ledger, err = ledger.Open(t.Context(), h.db, ledger.Config{Dialect: store.SQLite}); err != nil {
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

// book returns a book, and runs it until t ends.
func (h *env) book(t *testing.T, db *sql.DB, process string) *ledger.Book {
	t.Helper()
	book := ledger.NewBook(db, ledger.BookConfig{Dialect: store.SQLite, Process: process})
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

// inMemory returns a Management that calls the management API of b directly, without a network connection.
func inMemory(b *reprisetest.Broker) *ledger.Management {
	return &ledger.Management{URL: "http://broker", User: "guest", Password: "guest", Client: &http.Client{Transport: handlerTransport{b.Server().Management()}}}
}

type handlerTransport struct{ http.Handler }

func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// orders runs a worker on the queue orders with the handler f.
func (h *env) orders(t *testing.T, f reprise.HandlerFunc, options ...func(*reprise.WorkerConfig)) *reprisetest.Worker {
	t.Helper()
	cfg := reprise.WorkerConfig{Queue: "orders", Handler: f, Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)}}
	for _, o := range options {
		o(&cfg)
	}
	return h.WorkWith(t, h.client, cfg)
}

func (h *env) publish(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		h.Publish(t, &reprise.Message{RoutingKey: "orders", Body: []byte(body)})
	}
}

// line waits until the samples show the current state, and returns the line of the account orders.
func (h *env) line(t *testing.T) ledger.Line {
	t.Helper()
	time.Sleep(75 * time.Second) // an exact opening requires four equal samples
	report, err := h.ledger.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range report.Accounts {
		if l.Name == "orders" {
			return l
		}
	}
	t.Fatalf("account orders not found: %+v", report)
	return ledger.Line{}
}

// channel opens a channel on a separate connection, as a program without Reprise does.
func (h *env) channel(t *testing.T) *amqp.Channel {
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
