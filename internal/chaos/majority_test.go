package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// If a quorum queue has lost its majority, RabbitMQ does not confirm messages for this queue, and soon stops reading from
// the connection. It answers the first such message of each channel only after 65 s. The client can still publish to other
// queues.
func TestClientPublishesWhileQueueHasNoMajority(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const confirmTimeout = 3 * time.Second
		client, err := reprise.Dial(t.Context(), c.URLs[0], &reprise.Config{ConfirmTimeout: confirmTimeout, Heartbeat: time.Second})
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

		ctx, stop := context.WithCancel(t.Context())
		var publishers sync.WaitGroup
		for range 500 {
			publishers.Go(func() {
				for ctx.Err() == nil {
					err := client.Publish(ctx, &reprise.Message{RoutingKey: "stuck"})
					if err == nil {
						t.Error("message confirmed without a majority")
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
		testkit.Eventually(t, timeout, func() error { return steady(100) }) // after the client has opened a second connection
		for until := time.Now().Add(3 * confirmTimeout); time.Now().Before(until); {
			if err := steady(1); err != nil {
				t.Fatalf("cannot publish to another queue: %v", err)
			}
		}
		stop()
		publishers.Wait()
		c.Start(c.Nodes[1])
		testkit.Eventually(t, timeout, func() error { return publish("stuck") })
		testkit.Eventually(t, timeout, func() error { return client.Healthy(t.Context()) })
	})
}

// If many failed queues have lost their majority, the copies for these queues wait. When the majority is available again,
// each queue receives each copy exactly once.
func TestWorkerParksAfterMajorityReturns(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const queues, each = 20, 12
		log := &tally{counts: map[string]int{}}
		client, err := reprise.Dial(t.Context(), c.URLs[0], &reprise.Config{
			ConfirmTimeout: 3 * time.Second, Heartbeat: time.Second, Logger: slog.New(log),
		})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		defer running.Wait()
		defer client.Close(context.Background())
		work := func(i int) string { return fmt.Sprint("work-", i) }
		for i := range queues {
			worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
				Queue: work(i),
				Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
					return reprise.Park(errors.New("rejected"))
				}),
				Topology: topology.Topology{Queues: []topology.Queue{{Name: work(i), Args: topology.Table{"x-queue-type": "classic"}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			running.Go(func() { _ = worker.Run(context.Background()) })
		}
		testkit.Eventually(t, timeout, func() bool { return log.count("consuming") == queues })
		publish := func(n int) {
			for id := range n {
				for i := range queues {
					if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: work(i), MessageID: fmt.Sprint(n, "-", id)}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		publish(1)
		testkit.Eventually(t, timeout, func() bool { return log.count("parked") == queues })
		c.Kill(c.Nodes[1])
		c.Kill(c.Nodes[2])
		publish(each)
		testkit.Eventually(t, timeout, func() bool { return log.count("confirm is late") >= queues*each })
		c.Start(c.Nodes[1])
		testkit.Eventually(t, timeout, func() error {
			if n := log.count("parked"); n < queues*(1+each) {
				return fmt.Errorf("parked messages: got %d, want %d", n, queues*(1+each))
			}
			return nil
		})
		testkit.Eventually(t, timeout, func() error { return client.Healthy(t.Context()) })

		ch := openChannel(t, c.URLs[0])
		for i := range queues {
			copies := map[string]int{}
			for {
				d, ok, err := ch.Get(topology.FailedQueue(work(i)), true)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				copies[d.MessageId]++
			}
			if len(copies) != 1+each {
				t.Errorf("parked messages of %s: got %d, want %d", work(i), len(copies), 1+each)
			}
			for id, n := range copies {
				if n != 1 {
					t.Errorf("%s: message %s was parked %d times, want 1", work(i), id, n)
				}
			}
		}
		t.Log(log.counts)
	})
}

// tally is a log handler that counts records by message.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (l *tally) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[message]
}

// Handle implements slog.Handler.
func (l *tally) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[r.Message]++
	return nil
}

func (l *tally) Enabled(context.Context, slog.Level) bool { return true }
func (l *tally) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *tally) WithGroup(string) slog.Handler            { return l }
