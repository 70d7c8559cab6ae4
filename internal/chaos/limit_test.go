package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/limit"
	"github.com/reprisemq/reprise/topology"
)

// limited are workers of several processes that share a limit.
type limited struct {
	cfg     limit.Config
	handled atomic.Int64
	running atomic.Int64
	most    atomic.Int64 // of running
}

func (l *limited) Handle(context.Context, *reprise.Delivery) error {
	n := l.running.Add(1)
	defer l.running.Add(-1)
	for most := l.most.Load(); n > most && !l.most.CompareAndSwap(most, n); most = l.most.Load() {
	}
	l.handled.Add(1)
	if l.cfg.Concurrency > 0 {
		time.Sleep(20 * time.Millisecond) // other processes can start
	}
	return nil
}

// sample is the number of attempts at a time between before and after.
type sample struct {
	before   time.Time
	attempts int64
	after    time.Time
}

// Processes keep to their shared limits, and continue, although the leaders of the limits' queues and the nodes that the processes
// use are killed.
func TestKilledNodesKeepLimits(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const processes, rate, most, step = 3, 40, 2, 100
		all := []*limited{
			{cfg: limit.Config{Name: "rated", Rate: rate}},
			{cfg: limit.Config{Name: "counted", Concurrency: most}},
		}
		for n := range processes {
			// Each process begins with another node.
			hosts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.URL(), "amqp://guest:guest@"), "/"), ",")
			hosts = slices.Concat(hosts[n:], hosts[:n])
			client, err := reprise.Dial(t.Context(), "amqp://guest:guest@"+strings.Join(hosts, ",")+"/", &reprise.Config{Reconnect: backoff.Fixed(100 * time.Millisecond)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close(context.Background()) })
			for _, l := range all {
				shared, err := limit.New(client, l.cfg)
				if err != nil {
					t.Fatal(err)
				}
				w, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: l.cfg.Name, Handler: l, Limiter: shared, KeepDeclaring: true})
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan struct{})
				go func() {
					defer close(ran)
					if err := w.Run(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
				}()
				t.Cleanup(func() {
					_ = w.Shutdown(context.Background())
					<-ran
					shared.Close()
				})
			}
		}
		publisher, err := reprise.Dial(t.Context(), c.URL(), &reprise.Config{Reconnect: backoff.Fixed(100 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = publisher.Close(context.Background()) })

		period := func(what string, messages int) {
			t.Helper()
			for _, l := range all {
				batch := make([]*reprise.Message, messages)
				for i := range batch {
					batch[i] = &reprise.Message{RoutingKey: l.cfg.Name}
				}
				testkit.Eventually(t, timeout, func() error { return publisher.PublishBatch(t.Context(), batch) })
				before, asked := l.handled.Load(), time.Now()
				testkit.Eventually(t, timeout, func() error {
					if n := l.handled.Load() - before; n < step {
						return fmt.Errorf("%s: %d attempts since %s", l.cfg.Name, n, what)
					}
					return nil
				})
				t.Logf("%s: %s continued within %s", what, l.cfg.Name, time.Since(asked).Round(time.Millisecond))
			}
		}

		for _, l := range all {
			testkit.Eventually(t, timeout, func() error {
				return publisher.Declare(t.Context(), topology.Buckets{}.Topology(l.cfg.Name))
			})
		}
		stop, watched := make(chan struct{}), make(chan struct{})
		var samples []sample
		go func() {
			defer close(watched)
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					before := time.Now()
					samples = append(samples, sample{before, all[0].handled.Load(), time.Now()})
				case <-stop:
					return
				}
			}
		}()
		period("the start", 4000)
		for n := range max(3, *rounds/2) {
			node := c.Leader("reprise.limits."+all[n%2].cfg.Name, c.Nodes[n%3])
			if !slices.Contains(c.Nodes, node) {
				node = c.Nodes[n%3]
			}
			c.Kill(node)
			period("the end of "+node, 1000)
			c.Start(node)
			period("the return of "+node, 1000)
		}
		close(stop)
		<-watched
		// A worker counts an attempt after its permit, so at most one attempt of each process is counted in a later period.
		for i, from := range samples {
			for _, to := range samples[i+1:] {
				w := to.after.Sub(from.before)
				if n, most := to.attempts-from.attempts, int64(w.Seconds()*rate)+2*processes; n > most {
					t.Fatalf("%d attempts within %s, want at most %d", n, w, most)
				}
			}
		}
		t.Logf("%d attempts within %s", all[0].handled.Load(), samples[len(samples)-1].after.Sub(samples[0].before))
		if n := all[1].most.Load(); n > most {
			t.Errorf("%d attempts ran at the same time, want at most %d", n, most)
		}
	})
}
