package workertest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// BenchmarkLanes measures the throughput of a burst of 100,000 messages of one key, and the delay of 200 messages of another key
// during the burst, one every 10 ms: in the same queue, in the lane of the burst, and in another lane. The handler does nothing.
// The benchmark needs RabbitMQ 4.3:
//
//	REPRISE_TEST_RABBITMQ_43=$(scripts/rabbitmq start 4.3) go test -run '^$' -bench Lanes -benchtime 1x ./internal/workertest
func BenchmarkLanes(b *testing.B) {
	rabbit := testkit.RabbitMQs()[1]
	rabbit.Require(b)
	for _, tc := range []struct {
		name     string
		lanes    int
		quiet    int // lane; the burst has lane 0
		prefetch int
	}{{"plain queue", 0, 0, 32}, {"lane of the burst", 16, 0, 32}, {"another lane", 16, 7, 32}, {"another lane, prefetch 16", 16, 7, 16}, {"another lane, prefetch 8", 16, 7, 8}} {
		b.Run(tc.name, func(b *testing.B) {
			for b.Loop() {
				burst(b, rabbit.URL, tc.lanes, tc.quiet, tc.prefetch)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func burst(b *testing.B, url string, lanes, quiet, prefetch int) {
	const messages, quietMessages = 100_000, 200
	r, c := newRaw(b, url), dial(b, url)
	queue := testkit.Name(b, "burst")
	queues, route := []string{queue}, topology.Route(topology.Buckets{})
	if lanes > 0 {
		queues, route = topology.Lanes{Count: lanes}.Queues(queue), topology.Lanes{Count: lanes}
	}
	r.deleteQueues(append(queues, queue+".failed")...)
	r.declare(c, route.Topology(queue))
	for range messages / 1000 {
		batch := make([]*reprise.Message, 1000)
		for i := range batch {
			batch[i] = &reprise.Message{RoutingKey: queues[0], Body: []byte("burst")}
		}
		if err := c.PublishBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	var handled atomic.Int32
	var mu sync.Mutex
	var late []time.Duration
	done := make(chan struct{})
	began := time.Now()
	start(b, c, reprise.WorkerConfig{
		Queue: queue, Lanes: lanes, Concurrency: 8, Prefetch: prefetch,
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if sent, ok := m.Headers["sent"].(int64); ok {
				mu.Lock()
				late = append(late, time.Since(time.UnixMicro(sent)))
				mu.Unlock()
			}
			if handled.Add(1) == messages+quietMessages {
				close(done)
			}
			return nil
		}),
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	publisher := dial(b, url)
	for range quietMessages {
		<-tick.C
		m := &reprise.Message{RoutingKey: queues[quiet], Headers: map[string]any{"sent": time.Now().UnixMicro()}}
		if err := publisher.Publish(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	during := handled.Load()
	<-done
	b.ReportMetric((messages+quietMessages)/time.Since(began).Seconds(), "messages/s")
	b.ReportMetric(float64(during), "handled-when-sent")
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "p99-ms")
}
