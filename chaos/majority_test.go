package chaos

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A quorum queue has lost its majority. RabbitMQ then neither confirms what is
// published there nor reads on for long, and it keeps the first such message of each
// channel for 65 s. A client goes on publishing to other queues.
func TestAQueueWithoutAMajority(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const timeout = 3 * time.Second
		client, err := reprise.Dial(t.Context(), c.URLs[0], &reprise.Config{ConfirmTimeout: timeout, Heartbeat: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		queues := []topology.Queue{
			{Name: "stuck", Args: topology.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}},
			{Name: "alone", Args: topology.Table{"x-queue-type": "classic"}},
		}
		if err := client.Declare(t.Context(), topology.Topology{Queues: queues}); err != nil {
			t.Fatal(err)
		}
		publish := func(queue string) error {
			return client.Publish(t.Context(), &reprise.Message{RoutingKey: queue})
		}
		for _, q := range queues {
			if err := publish(q.Name); err != nil {
				t.Fatal(err)
			}
		}
		c.Kill(c.Nodes[1])
		c.Kill(c.Nodes[2])

		ctx, enough := context.WithCancel(t.Context())
		var publishers sync.WaitGroup
		for range 500 {
			publishers.Go(func() {
				for ctx.Err() == nil {
					err := client.Publish(ctx, &reprise.Message{RoutingKey: "stuck"})
					if err == nil {
						t.Error("a message is confirmed without a majority")
						return
					}
				}
			})
		}
		steady := func(n int) error {
			for range n {
				if err := publish("alone"); err != nil {
					return err
				}
			}
			return nil
		}
		testkit.Eventually(t, patience, func() error { return steady(100) }) // over another connection
		for until := time.Now().Add(3 * timeout); time.Now().Before(until); {
			if err := steady(1); err != nil {
				t.Fatalf("to another queue: %v", err)
			}
		}
		enough()
		publishers.Wait()
		c.Start(c.Nodes[1])
		testkit.Eventually(t, patience, func() error { return publish("stuck") })
		testkit.Eventually(t, patience, func() error { return client.Healthy(t.Context()) })
	})
}
