package workertest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// benchPublisher returns a client, and a function that creates messages for a queue with a length limit.
func benchPublisher(b *testing.B) (client, func() *reprise.Message) {
	c := dial(b, testkit.Embedded(b).URL)
	if err := c.Declare(b.Context(), topology.Topology{Queues: []topology.Queue{{Name: "q", Args: topology.Table{"x-max-length": 1000}}}}); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	return c, func() *reprise.Message { return &reprise.Message{RoutingKey: "q", MessageID: "id", Body: body} }
}

// BenchmarkPublish publishes messages one at a time in each of a number of goroutines.
func BenchmarkPublish(b *testing.B) {
	for _, goroutines := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			c, message := benchPublisher(b)
			b.ReportAllocs()
			var all sync.WaitGroup
			for b.Loop() {
				for range goroutines {
					all.Go(func() {
						if err := c.Publish(b.Context(), message()); err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(b.N*goroutines)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

func BenchmarkPublishBatch(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, message := benchPublisher(b)
			batch := make([]*reprise.Message, size)
			for i := range batch {
				batch[i] = message()
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := c.PublishBatch(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
