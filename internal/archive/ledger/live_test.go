package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// live is a broker with a management API that updates the figures at the interval every.
type live struct {
	url   string
	api   *ledger.Management
	every time.Duration
}

func eachLive(t *testing.T, test func(t *testing.T, b live)) {
	t.Run("embedded", func(t *testing.T) {
		b, api := testkit.EmbeddedManaged(t, broker.Config{})
		test(t, live{b.URL, management(t, api), 20 * time.Millisecond})
	})
	for _, b := range testkit.RabbitMQs() {
		t.Run(b.Name, func(t *testing.T) {
			b.Require(t)
			t.Parallel() // the test mostly waits for figures
			test(t, live{b.URL, management(t, b.ManagementURL(t)), 6 * time.Second})
		})
	}
}

func management(t *testing.T, address string) *ledger.Management {
	return &ledger.Management{URL: address, User: "guest", Password: "guest", Client: testkit.HTTPClient(t)}
}

// The equation of the ledger depends on the counts of the broker. These counts must include the messages that clients
// publish to a queue, and exclude dead-lettered and requeued messages.
func TestLedgerWithRealBrokers(t *testing.T) {
	ways := map[string]topology.Strategy{
		"copy":        {Route: topology.Buckets{Base: 10 * time.Millisecond}},
		"dead-letter": {Route: topology.DeadLettering{Delay: 20 * time.Millisecond}},
		"requeue":     {Route: topology.Requeuing{}},
	}
	eachLive(t, func(t *testing.T, b live) {
		db := openSQLite(t)
		l, err := ledger.Open(t.Context(), db.DB, ledger.Config{Dialect: db.dialect, Every: b.every})
		if err != nil {
			t.Fatal(err)
		}
		book := ledger.NewBook(db.DB, ledger.BookConfig{Dialect: db.dialect, Every: b.every / 3})
		var accounts []ledger.Account
		queues := map[string]string{}
		stop := map[string]func(){}
		client := dialLive(t, b.url, book)
		for way, strategy := range ways {
			queue := testkit.Name(t, "ledger."+way)
			queues[way] = queue
			accounts = append(accounts, ledger.Account{Work: []string{queue}, Wait: []string{queue + ".retry"}})
			stop[way] = work(t, client, reprise.WorkerConfig{
				Queue: queue, Strategy: strategy, Handler: reprise.HandlerFunc(obey),
				Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Millisecond)},
			})
		}
		deleteAfter(t, b.url, queues)
		run(t, book.Run)
		run(t, func(ctx context.Context) error {
			l.Run(ctx, ledger.Sources{Broker: b.api}, func() []ledger.Account { return accounts })
			return nil
		})
		await := func(what string, good func(way string, l ledger.Line) bool) {
			t.Helper()
			testkit.Eventually(t, 3*time.Minute, func() error {
				report, err := l.Report(t.Context())
				if err != nil {
					return err
				}
				for way, queue := range queues {
					var found ledger.Line
					for _, line := range report.Accounts {
						if line.Name == queue {
							found = line
						}
					}
					if found.Slack != 0 || !good(way, found) {
						return fmt.Errorf("%s, strategy %s: got %+v, want the expected counts and slack 0", what, way, found)
					}
				}
				return nil
			})
		}
		await("empty", func(_ string, l ledger.Line) bool { return l.State == ledger.Balanced })
		for _, queue := range queues {
			for _, body := range []string{"a", "b", "twice", "twice", "never"} {
				if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, Body: []byte(body)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		await("processed", func(_ string, l ledger.Line) bool {
			return l.State == ledger.Balanced && l.In == 5 && l.Done == 4 && l.Failed == 1
		})
		ch := channelLive(t, b.url)
		for way, queue := range queues {
			stop[way]()
			for range 3 {
				if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := ch.QueuePurge(queue, false); err != nil {
				t.Fatal(err)
			}
		}
		await("purged", func(_ string, l ledger.Line) bool {
			return l.State == ledger.Differs && l.In == 8 && l.Missing == 3
		})
	})
}

func dialLive(t *testing.T, address string, book *ledger.Book) *reprise.Client {
	t.Helper()
	c, err := reprise.Dial(t.Context(), address, &reprise.Config{Observer: book})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// work runs a worker, and returns a function that stops it.
func work(t *testing.T, c *reprise.Client, cfg reprise.WorkerConfig) (stop func()) {
	t.Helper()
	w, err := reprise.NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	testkit.Eventually(t, 2*time.Minute, func() bool { return w.Status().Err == nil })
	return stop
}

func channelLive(t *testing.T, address string) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func deleteAfter(t *testing.T, address string, queues map[string]string) {
	ch := channelLive(t, address)
	t.Cleanup(func() {
		for _, queue := range queues {
			for _, suffix := range []string{"", ".failed", ".retry", ".wait.0-10"} {
				if _, err := ch.QueueDelete(queue+suffix, false, false, false); err != nil {
					t.Error(err)
				}
			}
		}
	})
}
