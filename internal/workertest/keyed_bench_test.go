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
)

// BenchmarkKeyedLatency measures the time from the publication of a message until its handler begins, at 1000 messages per second
// with 100 keys. Then it measures the same while other keys in the same partitions wait for a retry with 1000 messages behind them.
// It needs RabbitMQ 4.3:
//
//	REPRISE_TEST_RABBITMQ_43=$(scripts/rabbitmq start 4.3) go test -run '^$' -bench KeyedLatency ./internal/workertest
func BenchmarkKeyedLatency(b *testing.B) {
	rabbit := testkit.RabbitMQs()[1]
	rabbit.Require(b)
	const partitions, messages, keys, blocked, behind = 4, 5000, 100, 10, 100
	queue := testkit.Name(b, "keyed")
	cleanKeyed(b, rabbit.URL, queue, partitions)
	var mu sync.Mutex
	var latencies []time.Duration
	held := 0
	start(b, dial(b, rabbit.URL), reprise.WorkerConfig{
		Queue: queue, Concurrency: 8, OrderBy: &reprise.Keyed{Partitions: partitions}, Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			if m.Type == "blocked" {
				held++
				return errors.New("fails")
			}
			if sent, ok := m.Headers["sent"].(int64); ok {
				latencies = append(latencies, time.Duration(time.Now().UnixNano()-sent))
			}
			return nil
		}),
	})
	c := dial(b, rabbit.URL)
	publish := func(key, kind string) {
		m := &reprise.Message{Type: kind, Headers: map[string]any{"sent": time.Now().UnixNano()}}
		if err := c.PublishKeyed(b.Context(), queue, partitions, key, m); err != nil {
			b.Error(err)
		}
	}
	run := func(b *testing.B) {
		mu.Lock()
		latencies = nil
		mu.Unlock()
		for b.Loop() {
			tick := time.NewTicker(time.Millisecond)
			var publishing sync.WaitGroup
			for i := range messages {
				<-tick.C
				publishing.Go(func() { publish(fmt.Sprint("key ", i%keys), "") })
			}
			tick.Stop()
			publishing.Wait()
		}
		testkit.Eventually(b, timeout, func() bool { mu.Lock(); defer mu.Unlock(); return len(latencies) >= b.N*messages })
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(latencies)
		for unit, at := range map[string]float64{"p50-ms": .5, "p99-ms": .99} {
			b.ReportMetric(float64(latencies[int(at*float64(len(latencies)-1))].Microseconds())/1000, unit)
		}
		b.ReportMetric(0, "ns/op")
	}
	b.Run("alone", run)
	for k := range blocked {
		for range 1 + behind {
			publish(fmt.Sprint("blocked ", k), "blocked")
		}
	}
	testkit.Eventually(b, timeout, func() bool { mu.Lock(); defer mu.Unlock(); return held == blocked })
	b.Run("blocked", run)
}
