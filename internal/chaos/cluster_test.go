package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// While messages fail, are retried and parked, the test kills and restarts the leader of the work queue, and then kills
// another node. Workers that have the addresses of all nodes continue. In the end, each message is done or parked,
// regardless of whether a retry is a copy, a dead letter or a requeue.
func TestWorkerSurvivesKilledLeaders(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		all := []*orders{
			newOrders("copied", topology.Buckets{Base: 50 * time.Millisecond}),
			newOrders("dead-lettered", topology.DeadLettering{Delay: 20 * time.Millisecond}),
			newOrders("requeued", topology.Requeuing{}),
		}
		for _, o := range all {
			o.work(t, c.URL())
		}
		resume := func() {
			t.Helper()
			for _, wait := range []func(){all[0].more(t), all[1].more(t), all[2].more(t)} {
				wait()
			}
		}

		resume()
		first := c.Leader(all[0].queue, c.Nodes[0])
		c.Kill(first)
		resume() // two of three nodes are running
		c.Start(first)
		resume()
		second := c.Leader(all[0].queue, first)
		if !slices.Contains(c.Nodes, second) || second == first {
			second = c.Nodes[(slices.Index(c.Nodes, first)+1)%len(c.Nodes)]
		}
		c.Kill(second)
		resume()
		// If a node stops, RabbitMQ reserves the unacked messages of the node's consumers for 60 s
		// (consumer_disconnected_timeout), or until the node is restarted.
		c.Start(second)

		t.Logf("killed %s, then %s", first, second)
		for _, o := range all {
			o.stop()
			o.allSettled(t, c.URLs[slices.Index(c.Nodes, first)])
			t.Log(o)
		}
	})
}

// timeout is the maximum duration of a step, such as the start of a node or the election of leaders, on a busy machine.
const timeout = 2 * time.Minute

// orders publishes numbered messages and processes them. Every ninth message fails until it is parked. The other
// messages with a number divisible by three fail once.
type orders struct {
	queue     string
	route     topology.Route
	consuming chan struct{} // closed when the worker consumes
	begin     func()        // closes consuming
	stop      func()        // stops the publisher

	mu        sync.Mutex
	published int
	handled   int      // number of done and parked events, including duplicates
	foreign   []string // messages that the test did not publish
	done      map[string]int
	parked    map[string]int
}

func newOrders(queue string, route topology.Route) *orders {
	consuming := make(chan struct{})
	return &orders{
		queue: queue, route: route,
		consuming: consuming, begin: sync.OnceFunc(func() { close(consuming) }),
		done: make(map[string]int), parked: make(map[string]int),
	}
}

func name(n int) string { return fmt.Sprint("order-", n) }

// work publishes orders and handles them until the test finishes.
func (o *orders) work(t *testing.T, url string) {
	t.Helper()
	client, err := reprise.Dial(t.Context(), url, &reprise.Config{
		Observer:  o,
		Reconnect: backoff.Exponential{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: o.queue, Handler: o, Concurrency: 4,
		Policy:   reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(20 * time.Millisecond)},
		Strategy: topology.Strategy{Route: o.route},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.Run(context.Background()); err != nil {
			t.Errorf("worker of %s: %v", o.queue, err)
		}
	})
	t.Cleanup(func() {
		stop()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := errors.Join(worker.Shutdown(ctx), client.Close(ctx)); err != nil {
			t.Errorf("cannot shut down %s: %v", o.queue, err)
		}
		running.Wait()
	})
	select {
	case <-o.consuming:
	case <-time.After(timeout):
		t.Fatalf("worker of %s does not consume", o.queue)
	}
	running.Go(func() { o.publish(ctx, client) })
}

// publish publishes at a moderate rate. It repeats each message, with the same ID, until the broker confirms it.
func (o *orders) publish(ctx context.Context, c *reprise.Client) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for n := 1; ; n++ {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		m := &reprise.Message{RoutingKey: o.queue, MessageID: name(n), Body: []byte(name(n))}
		for err := c.Publish(context.Background(), m); err != nil; err = c.Publish(context.Background(), m) {
			if errors.Is(err, reprise.ErrClosed) {
				return
			}
		}
		o.mu.Lock()
		o.published = n
		o.mu.Unlock()
	}
}

// Handle implements reprise.Handler.
func (o *orders) Handle(_ context.Context, m *reprise.Delivery) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(m.MessageID, "order-%d", &n); err != nil || string(m.Body) != m.MessageID {
		o.foreign = append(o.foreign, fmt.Sprintf("%q with id %q", m.Body, m.MessageID))
	}
	if n%9 == 0 || n%3 == 0 && m.Attempt == 1 {
		return errors.New("simulated failure")
	}
	o.done[m.MessageID]++
	o.handled++
	return nil
}

// Observe implements reprise.Observer.
func (o *orders) Observe(e reprise.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case reprise.EventConsuming:
		o.begin()
	case reprise.EventParked:
		o.handled++
	}
}

// more returns a function that waits until 60 further messages are done or parked after the call to more.
func (o *orders) more(t *testing.T) func() {
	const wanted = 60
	handled := func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.handled
	}
	before := handled()
	return func() {
		t.Helper()
		testkit.Eventually(t, timeout, func() error {
			if n := handled() - before; n < wanted {
				return fmt.Errorf("%s: done and parked: got %d, want %d", o.queue, n, wanted)
			}
			return nil
		})
	}
}

// openChannel opens a channel with the AMQP client, not with package reprise.
func openChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// allSettled waits until each message is done or parked.
func (o *orders) allSettled(t *testing.T, url string) {
	t.Helper()
	ch := openChannel(t, url)
	testkit.Eventually(t, timeout, func() error {
		for {
			d, ok, err := ch.Get(topology.FailedQueue(o.queue), true)
			if err != nil {
				return err
			}
			if !ok {
				return o.missing()
			}
			o.mu.Lock()
			o.parked[d.MessageId]++
			o.mu.Unlock()
		}
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.foreign != nil {
		t.Errorf("%s: received unpublished messages %v", o.queue, o.foreign)
	}
}

// missing returns an error that lists the messages that are neither done nor parked.
func (o *orders) missing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var missing []string
	for n := 1; n <= o.published; n++ {
		if o.done[name(n)]+o.parked[name(n)] == 0 {
			missing = append(missing, name(n))
		}
	}
	if missing != nil {
		return fmt.Errorf("%s: %[3]d of %[2]d messages lost: %[4]v", o.queue, o.published, len(missing), missing[:min(len(missing), 20)])
	}
	return nil
}

// String summarizes the counts for error messages.
func (o *orders) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	again := 0
	for n := 1; n <= o.published; n++ {
		again += o.done[name(n)] + o.parked[name(n)] - 1
	}
	return fmt.Sprintf("%s: %d messages, %d parked, %d duplicates", o.queue, o.published, len(o.parked), again)
}
