package workertest

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// BenchmarkAnnounce measures the cost of announcing a worker: the time from the first delivery to the last
// acknowledgement of 20,000 messages on the embedded broker.
//
//	go test -run '^$' -bench Announce -benchtime 5x -count 6 ./internal/workertest
func BenchmarkAnnounce(b *testing.B) {
	for _, announce := range []bool{false, true} {
		b.Run("announce="+strconv.FormatBool(announce), func(b *testing.B) {
			const messages = 20_000
			c := dial(b, testkit.Embedded(b).URL, func(c *reprise.Config) { c.Announce = announce })
			queue := topology.Queue{Name: "work", Args: topology.Table{"x-queue-type": "classic"}}
			if err := c.Declare(b.Context(), topology.Topology{Queues: []topology.Queue{queue}}); err != nil {
				b.Fatal(err)
			}
			batch := make([]*reprise.Message, messages)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				for i := range batch {
					batch[i] = &reprise.Message{RoutingKey: "work", Body: make([]byte, 100)}
				}
				if err := c.PublishBatch(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				var handled sync.WaitGroup
				handled.Add(messages)
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
					Queue: "work", Concurrency: 16, Prefetch: 256, Topology: topology.Topology{Queues: []topology.Queue{queue}},
					Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { handled.Done(); return nil }),
				})
				if err != nil {
					b.Fatal(err)
				}
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				b.StartTimer()
				go func() { ended <- w.Run(ctx) }()
				handled.Wait()
				stop()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*messages), "ns/message")
		})
	}
}
