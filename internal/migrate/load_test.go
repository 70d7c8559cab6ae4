package migrate_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

var messages = flag.Int("migrate.messages", 6000, "maximum number of messages that are published during a migration under load")

// consumer consumes from a queue until it is stopped, and acknowledges all messages that it has received.
type consumer struct {
	ch     *amqp.Channel
	done   sync.WaitGroup
	bodies []string
}

func (f *fixture) consume(t *testing.T, queue string) *consumer {
	t.Helper()
	c := &consumer{ch: f.open(t)}
	if err := c.ch.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := c.ch.Consume(queue, "test", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.done.Go(func() {
		for d := range deliveries {
			c.bodies = append(c.bodies, string(d.Body))
			_ = d.Ack(false)
		}
	})
	return c
}

// stop returns the bodies of the consumed messages.
func (c *consumer) stop(t *testing.T) []string {
	t.Helper()
	if err := c.ch.Cancel("test", false); err != nil {
		t.Error(err)
	}
	c.done.Wait()
	if err := c.ch.Close(); err != nil {
		t.Error(err)
	}
	return c.bodies
}

// flood publishes batches from two connections, until it is stopped. Like many programs, it does not use the flag mandatory, so that
// the broker confirms and drops a message without a queue. It publishes the second half of the messages when the migration
// begins a step. It returns the messages that the broker has confirmed.
func (f *fixture) flood(t *testing.T, exchange, key, step string) (stop func() []string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	begun := make(chan struct{})
	var once sync.Once
	next := f.onStep
	f.onStep = func(text string) {
		if strings.HasPrefix(text, step) {
			once.Do(func() { close(begun) })
		}
		if next != nil {
			next(text)
		}
	}
	var mu sync.Mutex
	var confirmed []string
	var wg sync.WaitGroup
	var second time.Time // begin of the second half
	rest := 0            // number of messages that are confirmed since then
	for p := range 2 {
		wg.Go(func() {
			for sent := 0; sent < *messages/2 && ctx.Err() == nil; {
				conn, err := amqp.Dial(f.url)
				if err != nil { // connections are refused
					_ = retry.Sleep(ctx, 10*time.Millisecond)
					continue
				}
				for sent < *messages/2 && ctx.Err() == nil {
					if sent >= *messages/4 {
						select {
						case <-begun:
						case <-ctx.Done():
						}
						mu.Lock()
						if second.IsZero() {
							second = time.Now()
						}
						mu.Unlock()
					}
					some := publishBatch(ctx, conn, exchange, key, fmt.Sprintf("%d-%d", p, sent))
					if len(some) == 0 {
						break
					}
					mu.Lock()
					confirmed = append(confirmed, some...)
					if !second.IsZero() {
						rest += len(some)
					}
					mu.Unlock()
					sent += 50
				}
				sent += 50 // other bodies
				conn.Close()
			}
		})
	}
	var last time.Time
	published := make(chan struct{})
	go func() {
		wg.Wait()
		last = time.Now()
		close(published)
	}()
	stop = func() []string {
		end()
		<-published
		t.Logf("%.0f messages/s during the migration", float64(rest)/last.Sub(second).Seconds())
		return confirmed
	}
	t.Cleanup(func() {
		end()
		<-published
	})
	return stop
}

// publishBatch publishes 50 messages, and returns the bodies that the broker confirms.
func publishBatch(ctx context.Context, conn *amqp.Connection, exchange, key, prefix string) (confirmed []string) {
	ch, err := conn.Channel()
	if err != nil || ch.Confirm(false) != nil {
		return nil
	}
	defer ch.Close()
	results := map[string]*amqp.DeferredConfirmation{}
	for i := range 50 {
		body := fmt.Sprintf("%s-%d", prefix, i)
		if c, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent}); err == nil {
			results[body] = c
		}
	}
	for body, c := range results {
		if ok, err := c.WaitContext(ctx); ok && err == nil {
			confirmed = append(confirmed, body)
		}
	}
	return confirmed
}

// While programs publish to an exchange and consume, a migration loses no message. It waits until the consumers have stopped.
func TestLoadThroughExchange(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"", "orders.v2"} {
		t.Run("to "+to, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, f *fixture) {
				f.queue(t, "orders", amqp.Table{"x-max-priority": int64(5)})
				f.bound(t, "shop", "orders", "new", "other")
				old := f.consume(t, "orders")
				var stop sync.Once
				f.onStep = func(text string) {
					if strings.HasPrefix(text, "wait: orders has") {
						stop.Do(func() { old.stop(t) })
					}
				}
				confirmed := f.flood(t, "shop", "new", "move 2 bindings")
				change := migrate.Change{Queue: "orders", Delete: true, To: to, Set: quorum, Unset: []string{"x-max-priority"}}
				result, err := f.migrate(t.Context(), t, f.url, f.api, change)
				if err != nil {
					t.Fatal(err)
				}
				all := confirmed()
				queue := "orders" + strings.TrimPrefix(to, "orders")
				conserved(t, all, append(old.bodies, f.bodies(t, queue)...), result.Duplicates)
				f.clean(t, queue)
				t.Logf("%d confirmed, %d consumed, %+v", len(all), len(old.bodies), result)
			})
		})
	}
}

// While programs publish by the name of a queue, a migration that disconnects them loses no confirmed message.
func TestLoadByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.queue(t, "orders", nil)
		confirmed := f.flood(t, "", "orders", "close all other connections")
		change := migrate.Change{Queue: "orders", Set: topology.Table{"x-message-ttl": int64(3600000)}, Disconnect: true}
		result, err := f.migrate(t.Context(), t, f.url, f.api, change)
		if err != nil {
			t.Fatal(err)
		}
		all := confirmed()
		f.ch = f.open(t)
		conserved(t, all, f.bodies(t, "orders"), result.Duplicates)
		f.clean(t, "orders")
		t.Logf("%d confirmed, %+v", len(all), result)
	})
}

// A program that publishes while the queue does not exist gets no confirm, because it is disconnected.
func TestPublisherIsDisconnected(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		f.settle = 6 * time.Second // the management API lists connections late
		if !f.IsRabbitMQ {
			f.settle = time.Millisecond
		}
		f.queue(t, "orders", nil)
		conn, err := amqp.Dial(f.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		var confirmed []string
		f.onStep = func(text string) {
			if text == "declare orders" {
				confirmed = append(confirmed, publishBatch(t.Context(), conn, "", "orders", "a")...)
			}
		}
		change := migrate.Change{Queue: "orders", Set: quorum, Disconnect: true}
		if _, err := f.migrate(t.Context(), t, f.url, f.api, change); err != nil {
			t.Fatal(err)
		}
		conserved(t, confirmed, f.bodies(t, "orders"), 0)
	})
}
