package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// cleanKeyed deletes the queues of a worker with OrderBy at the end of the test.
func cleanKeyed(t *testing.T, b testkit.Target, queue string, partitions int) {
	t.Helper()
	names := []string{queue + ".failed", queue + ".part.members"}
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

// Processes divide the partitions. When a process stops, the others take over its partitions.
func TestKeyedWorkersDividePartitions(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions, processes = 8, 3
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b, queue, partitions)
		var mu sync.Mutex
		owners := map[string]int{}
		var stops []func() error
		for n := range processes {
			stops = append(stops, start(t, dial(t, b.URL), reprise.WorkerConfig{
				Queue: queue, OrderBy: &reprise.Keyed{Partitions: partitions},
				Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					owners[m.RoutingKey] = n
					return nil
				}),
			}))
		}
		publisher := dial(t, b.URL)
		divided := func(want ...int) func() error {
			return func() error {
				for n := range 10 * partitions {
					if err := publisher.PublishKeyed(t.Context(), queue, partitions, fmt.Sprint(n), &reprise.Message{}); err != nil {
						return err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				got := make([]int, processes)
				for _, n := range owners {
					got[n]++
				}
				if slices.Sort(got); !slices.Equal(got, want) || len(owners) != partitions {
					return fmt.Errorf("got %v partitions, want %v", got, want)
				}
				return nil
			}
		}
		testkit.Eventually(t, timeout, divided(2, 3, 3))
		if err := stops[1](); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		clear(owners)
		mu.Unlock()
		testkit.Eventually(t, timeout, divided(0, 4, 4))
	})
}

// Settings that would break the order, or lose messages, are refused.
func TestKeyedRefusesContradictions(t *testing.T) {
	valid := reprise.WorkerConfig{
		Queue: "orders", OrderBy: &reprise.Keyed{Partitions: 4},
		Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
	}
	if err := valid.Validate(); err != nil {
		t.Errorf("a valid configuration is refused: %v", err)
	}
	for name, change := range map[string]func(c *reprise.WorkerConfig){
		"no partitions":  func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{} },
		"too many held":  func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{Partitions: 1, MaxHeld: 65535} },
		"ack first":      func(c *reprise.WorkerConfig) { c.Order = reprise.AckThenPublish },
		"acked":          func(c *reprise.WorkerConfig) { c.Acked = func(*reprise.Delivery, error) {} },
		"priority":       func(c *reprise.WorkerConfig) { c.Priority = 1 },
		"requeuing":      func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.Requeuing{} },
		"dead-lettering": func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.DeadLettering{Delay: time.Second} },
	} {
		c := valid
		if change(&c); c.Validate() == nil {
			t.Errorf("%s: the configuration is accepted", name)
		}
	}
}
