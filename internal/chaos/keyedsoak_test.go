package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
)

var keyedMessages = flag.Int("chaos.keyed", 20_000, "number of messages with 10,000 keys that workers process in order")

// 10,000 keys keep their order through retries, while the connections of the workers are cut. In each batch, some messages fail
// up to five times.
func TestManyKeysKeepOrder(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // OrderBy requires RabbitMQ 4.0
		}
		const keys, batch, ahead, processes, between = 10_000, 1000, 5000, 2, 50_000
		messages := *keyedMessages / keys
		queue := testkit.Name(t, "keyed")
		deleteKeyed(t, b.URL, queue)
		order := testkit.NewKeyOrder()
		var done atomic.Int64
		var proxies []*testkit.Proxy
		for range processes {
			proxy := testkit.NewProxy(t, b.URL)
			proxies = append(proxies, proxy)
			runKeyed(t, proxy.URL(), reprise.WorkerConfig{
				Queue: queue, Concurrency: 16, OrderBy: &reprise.Keyed{Partitions: keyedPartitions},
				Policy: reprise.Policy{MaxAttempts: 1000, Backoff: backoff.Jitter{Backoff: backoff.Fixed(300 * time.Millisecond), Spread: 0.9}},
				Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					key, number := m.Headers[reprise.HeaderKey].(string), int(m.Headers["number"].(int64))
					if err := order.Begin(key, number, m.Epoch); err != nil {
						return err
					}
					if m.Attempt <= 5 && rand.IntN(100) < 2 {
						return errors.New("fails")
					}
					err := order.Done(key, number, m.Epoch)
					if err == nil {
						done.Add(1)
					}
					return err
				}),
			})
		}
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(context.Background()) })
		published := 0
		for number := range messages {
			for first := 0; first < keys; first += batch {
				var some []*reprise.Message
				for k := first; k < first+batch; k++ {
					key := fmt.Sprint("key", k)
					some = append(some, &reprise.Message{
						RoutingKey: reprise.PartitionQueue(queue, key, keyedPartitions),
						Headers:    map[string]any{reprise.HeaderKey: key, "number": int64(number + 1)},
					})
				}
				testkit.Eventually(t, timeout, func() bool { return published-int(done.Load()) < ahead })
				testkit.Eventually(t, timeout, func() error {
					err := client.PublishBatch(t.Context(), some)
					if failed, ok := errors.AsType[*reprise.BatchError](err); ok { // a busy leader may send nacks
						var again []*reprise.Message
						for _, m := range failed.Failed {
							again = append(again, some[m.Index])
						}
						some = again
					}
					return err
				})
				if published += batch; published%between == 0 {
					proxies[published/between%processes].Cut()
				}
			}
		}
		t.Cleanup(func() { // also if messages are missing
			for _, violation := range order.Violations() {
				t.Error(violation)
			}
			if n, err := client.Depth(context.Background(), queue+".failed"); err != nil || n > 0 {
				t.Errorf("%d messages are parked: %v", n, err)
			}
		})
		testkit.Eventually(t, 5*time.Minute, func() error { return order.Complete(keys, messages) })
	})
}

// runKeyed runs a worker until the end of the test.
func runKeyed(t *testing.T, url string, config reprise.WorkerConfig) {
	t.Helper()
	client, err := reprise.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := reprise.NewWorker(client, config)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- worker.Run(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := errors.Join(worker.Shutdown(ctx), client.Close(ctx)); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	testkit.Eventually(t, timeout, func() bool { return worker.Status() == reprise.Status{} })
}
