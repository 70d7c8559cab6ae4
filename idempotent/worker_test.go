package idempotent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// protections are the methods that make an effect (a row in bookings) happen once. During its first attempt, the
// handler calls the parameter first and returns its error, if any.
var protections = map[string]func(t *testing.T, db database, first func() error) reprise.Handler{
	"middleware": func(t *testing.T, db database, first func() error) reprise.Handler {
		db.exec(t, `CREATE TABLE bookings (message TEXT NOT NULL)`)
		var runs atomic.Int32
		return protect(t, db.store(t), idempotent.Config{}, func(ctx context.Context, m *reprise.Delivery) error {
			if runs.Add(1) == 1 {
				if err := first(); err != nil {
					return err
				}
			}
			_, err := db.ExecContext(ctx, db.book(), m.MessageID)
			return err
		})
	},
	"transaction": func(t *testing.T, db database, first func() error) reprise.Handler {
		book := db.bookings(t)
		var runs atomic.Int32
		return transaction(t, db.store(t), idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
			if err := book(ctx, tx, m); err != nil {
				return err
			}
			if runs.Add(1) == 1 {
				return first()
			}
			return nil
		})
	},
}

// The effect in the database happens once, regardless of the cause of a duplicate.
func TestEffectHappensOnce(t *testing.T) {
	for _, tc := range []struct {
		name       string
		publish    int
		cut        bool  // cut the connection before the ack of the first attempt
		result     error // result of the first attempt
		deliveries int   // the minimum; a copy may arrive before the cut and be redelivered
	}{
		{name: "published twice", publish: 2, deliveries: 2},
		{name: "ack lost", publish: 1, cut: true, deliveries: 2},
		{name: "ack lost after the copy was confirmed", publish: 1, cut: true, result: errHandler, deliveries: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, handler := range protections {
				t.Run(name, func(t *testing.T) {
					testkit.Each(t, func(t *testing.T, b testkit.Target) {
						db := openSQLite(t)
						proxy := testkit.NewProxy(t, b.URL)
						var happened <-chan struct{}
						inner := handler(t, db, func() error {
							if tc.cut {
								happened = proxy.CutInAck()
							}
							return tc.result
						})
						queue := names(t, b.URL)
						client := dial(t, b.URL, proxy)
						var deliveries, redelivered atomic.Int32
						stop := work(t, client, reprise.WorkerConfig{
							Queue:    queue,
							Strategy: topology.Strategy{Route: topology.Buckets{Base: base}},
							Policy:   reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(time.Millisecond)},
							Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
								defer deliveries.Add(1)
								if m.Redelivered {
									redelivered.Add(1)
								}
								return inner.Handle(ctx, m)
							}),
						})
						for range tc.publish {
							m := &reprise.Message{RoutingKey: queue, MessageID: "order-1", Body: []byte("100 €")}
							if err := client.Publish(t.Context(), m); err != nil {
								t.Fatal(err)
							}
						}
						testkit.Eventually(t, timeout, func() error {
							if n, again := int(deliveries.Load()), redelivered.Load(); n < tc.deliveries || tc.cut && again == 0 {
								return fmt.Errorf("got %d deliveries and %d redeliveries, want at least %d and, after a cut, 1", n, again, tc.deliveries)
							}
							return nil
						})
						if tc.cut {
							<-happened
						}
						stop()
						if n := db.count(t, "bookings"); n != 1 {
							t.Errorf("got %d bookings, want 1", n)
						}
					})
				})
			}
		})
	}
}

// base is the delay of the first wait queue.
const base = 20 * time.Millisecond

// names returns the name of a new work queue. The queue and its related queues are deleted at the end of the test.
func names(t *testing.T, url string) string {
	t.Helper()
	queue := testkit.Name(t, "work")
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for _, name := range []string{queue, queue + ".failed", queue + ".wait.0-20"} {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				t.Errorf("cannot delete queue %s: %v", name, err)
			}
		}
	})
	return queue
}

// dial returns a client with a direct publishing connection and a consuming connection through the proxy. The client
// opens the publishing connection first and never loses it.
func dial(t *testing.T, url string, proxy *testkit.Proxy) *reprise.Client {
	t.Helper()
	var dialled atomic.Int32
	client, err := reprise.Dial(t.Context(), url, &reprise.Config{
		Reconnect: backoff.Fixed(5 * time.Millisecond),
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialled.Add(1) > 1 {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(context.Background()); err != nil {
			t.Errorf("cannot close the client: %v", err)
		}
	})
	return client
}

// work runs a worker until stop is called or the test ends.
func work(t *testing.T, client *reprise.Client, cfg reprise.WorkerConfig) (stop func()) {
	t.Helper()
	if err := client.Declare(t.Context(), cfg.Strategy.WithDefaults().Route.Topology(cfg.Queue)); err != nil {
		t.Fatal(err)
	}
	w, err := reprise.NewWorker(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- w.Run(context.WithoutCancel(t.Context())) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if err := errors.Join(w.Shutdown(context.Background()), <-ran); err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// A message is handled only once, even if its handler runs for so long that a duplicate or a redelivery arrives. The test
// runs in virtual time.
func TestLongRunIsNotRepeated(t *testing.T) {
	for _, tc := range []struct {
		name    string
		publish int
		takes   time.Duration
		busy    bool
	}{
		{"published twice", 2, 25 * time.Minute, true},
		// After the acknowledgement timeout, the broker requeues the message and redelivers it, here to the same worker, which
		// does not start the message while its handler still runs.
		{"longer than the acknowledgement timeout", 1, 45 * time.Minute, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := broker.New(broker.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Shutdown(context.Background())
				client, err := reprise.Dial(t.Context(), "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close(context.Background())

				inner := countingHandler{then: func(int) error { time.Sleep(tc.takes); return nil }}
				log, logged := events()
				once, err := idempotent.Middleware(new(idempotent.Memory), idempotent.Config{Logger: log})
				if err != nil {
					t.Fatal(err)
				}
				stop := work(t, client, reprise.WorkerConfig{
					Queue:       "orders",
					Concurrency: 2,
					Handler:     &inner,
					Middleware:  []reprise.Middleware{once},
				})
				for range tc.publish {
					if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", MessageID: "1"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(12 * time.Hour)
				stop()
				if n := inner.runs.Load(); n != 1 {
					t.Errorf("message was handled %d times, want 1", n)
				}
				if strings.Contains(logged(), "msg=busy") != tc.busy || strings.Count(logged(), "msg=duplicate") != 1 {
					t.Errorf("log must contain duplicate once, and busy %t: got\n%s", tc.busy, logged())
				}
			})
		})
	}
}
