package workertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
)

// cleanKeyed deletes the queues of a worker with OrderBy at the end of the test.
func cleanKeyed(t *testing.T, b testkit.Target, queue string, partitions int) {
	t.Helper()
	names := []string{queue + ".failed"}
	for n := range partitions {
		name := fmt.Sprintf("%s.part.%d", queue, n)
		names = append(names, name, name+".held")
	}
	newRaw(t, b.URL).deleteQueues(names...)
}

// Keys keep their order although attempts fail and the connections of all processes are cut.
func TestKeyedWorkersKeepOrder(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions, keys, messages, processes, cuts = 4, 10, 12, 3, 12
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b, queue, partitions)
		order := testkit.NewKeyOrder()
		var mu sync.Mutex
		failures := map[string]int{}
		var proxies []*testkit.Proxy
		for range processes {
			proxy := testkit.NewProxy(t, b.URL)
			proxies = append(proxies, proxy)
			start(t, dial(t, proxy.URL()), reprise.WorkerConfig{
				Queue: queue, Concurrency: 8, OrderBy: &reprise.Keyed{Partitions: partitions},
				Policy: reprise.Policy{Backoff: backoff.Fixed(50 * time.Millisecond)},
				Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					key, number := m.Headers[reprise.HeaderKey].(string), int(m.Headers["number"].(int64))
					if err := order.Begin(key, number, m.Epoch); err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					id := fmt.Sprint(key, number)
					if failures[id]++; failures[id]%3 == 1 && number%4 == 1 {
						return errors.New("fails")
					}
					return order.Done(key, number, m.Epoch)
				}),
			})
		}
		publisher := dial(t, b.URL)
		for n := range messages {
			for k := range keys {
				key := fmt.Sprint("key ", k)
				m := &reprise.Message{Headers: map[string]any{"number": int64(n + 1)}}
				if err := publisher.PublishKeyed(t.Context(), queue, partitions, key, m); err != nil {
					t.Fatal(err)
				}
			}
			proxies[n%processes].Cut()
		}
		for n := range cuts - messages {
			proxies[n%processes].Cut()
		}
		testkit.Eventually(t, timeout, func() error { return order.Complete(keys, messages) })
		for _, violation := range order.Violations() {
			t.Error(violation)
		}
	})
}
