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

// Keys above their rate keep their order, and lose nothing, although attempts fail and the connections of all processes are cut. Each
// owner starts at most the rate and one burst.
func TestKeyedWorkersLimitKeys(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions, keys, messages, processes, rate, burst = 2, 4, 120, 2, 50, 5
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, partitions)
		order := testkit.NewKeyOrder()
		var mu sync.Mutex
		attempts, owners := map[string]int{}, map[string]map[int64]bool{}
		var proxies []*testkit.Proxy
		for range processes {
			proxy := testkit.NewProxy(t, b.URL)
			proxies = append(proxies, proxy)
			start(t, dial(t, proxy.URL()), reprise.WorkerConfig{
				Queue: queue, Concurrency: 8, OrderBy: &reprise.Keyed{Partitions: partitions, Rate: rate, Burst: burst},
				Policy: reprise.Policy{MaxAttempts: 100, Backoff: backoff.Fixed(10 * time.Millisecond)},
				Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					key, number := m.Headers[reprise.HeaderKey].(string), int(m.Headers["number"].(int64))
					mu.Lock()
					if owners[key] == nil {
						owners[key] = map[int64]bool{}
					}
					owners[key][m.Epoch] = true
					attempts[key]++
					fails := attempts[key]%7 == 0
					mu.Unlock()
					if err := order.Begin(key, number, m.Epoch); err != nil {
						return err
					}
					if fails {
						return errors.New("fails")
					}
					return order.Done(key, number, m.Epoch)
				}),
			})
		}
		publisher := dial(t, b.URL)
		began := time.Now()
		for n := range messages {
			for k := range keys {
				m := &reprise.Message{Headers: map[string]any{"number": int64(n + 1)}}
				if err := publisher.PublishKeyed(t.Context(), queue, partitions, fmt.Sprint("key ", k), m); err != nil {
					t.Fatal(err)
				}
			}
			if n%40 == 39 {
				proxies[n/40%processes].Cut()
			}
		}
		testkit.Eventually(t, timeout, func() error { return order.Complete(keys, messages) })
		took := time.Since(began)
		for _, violation := range order.Violations() {
			t.Error(violation)
		}
		mu.Lock()
		defer mu.Unlock()
		for key, n := range attempts {
			if most := len(owners[key])*burst + int(took.Seconds()*rate); n > most {
				t.Errorf("%s: %d attempts within %s with %d owners, want at most %d", key, n, took, len(owners[key]), most)
			}
		}
	})
}
