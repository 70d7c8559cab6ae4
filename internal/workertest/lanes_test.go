package workertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// laned is a work queue with lanes. Its queues and exchanges are deleted at the end of the test.
type laned struct {
	*raw
	topology.Lanes
	queue string
}

func newLaned(t *testing.T, b testkit.Target, count int) laned {
	t.Helper()
	l := laned{newRaw(t, b.URL), topology.Lanes{Count: count}, testkit.Name(t, "laned")}
	hop, err := l.Wait(topology.Delivery{Queue: l.queue}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	l.deleteQueues(append(l.all(), l.queue+".failed", hop.Exchange)...)
	l.deleteExchanges(hop.Exchange)
	return l
}

func (l laned) all() []string { return l.Queues(l.queue) }

// config returns the configuration of a worker that retries after 50 ms.
func (l laned) config(h reprise.HandlerFunc) reprise.WorkerConfig {
	return reprise.WorkerConfig{
		Queue: l.queue, Lanes: l.Count, Handler: h, Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(50 * time.Millisecond)},
	}
}

// keys returns a key for each lane.
func (l laned) keys() []string {
	keys := make([]string, l.Count)
	for n, found := 0, 0; found < l.Count; n++ {
		key := fmt.Sprint("tenant ", n)
		for i, lane := range l.all() {
			if keys[i] == "" && reprise.LaneQueue(l.queue, key, l.Count) == lane {
				keys[i] = key
				found++
			}
		}
	}
	return keys
}

func (l laned) publishTo(c client, key, id string) {
	l.t.Helper()
	m := &reprise.Message{RoutingKey: reprise.LaneQueue(l.queue, key, l.Count), MessageID: id}
	if err := c.Publish(l.t.Context(), m); err != nil {
		l.t.Fatal(err)
	}
}

// A message in another lane than a burst begins after at most the burst's messages that the worker had received, not after the burst.
func TestLanesBurstDoesNotDelayOthers(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const burst, prefetch = 500, 16
		l := newLaned(t, b, 4)
		keys, c := l.keys(), dial(t, b.URL)
		if err := c.Declare(t.Context(), l.Topology(l.queue)); err != nil {
			t.Fatal(err)
		}
		var batch []*reprise.Message
		for range burst {
			batch = append(batch, &reprise.Message{RoutingKey: reprise.LaneQueue(l.queue, keys[2], l.Count), MessageID: "burst"})
		}
		if err := c.PublishBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		first, gate := make(chan struct{}, 1), make(chan struct{})
		start(t, c, l.config(func(_ context.Context, m *reprise.Delivery) error {
			select {
			case first <- struct{}{}:
			default:
			}
			<-gate
			mu.Lock()
			defer mu.Unlock()
			order = append(order, m.MessageID)
			return nil
		}))
		<-first
		for _, lane := range []int{0, 1, 3} {
			l.publishTo(c, keys[lane], "quiet")
		}
		testkit.Eventually(t, timeout, func() bool { // the worker receives them
			return l.depth(l.all()[0]) == 0 && l.depth(l.all()[1]) == 0 && l.depth(l.all()[3]) == 0
		})
		close(gate)
		testkit.Eventually(t, timeout, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(order) == burst+3
		})
		mu.Lock()
		defer mu.Unlock()
		for i, id := range order {
			if id == "quiet" && i > prefetch+3 {
				t.Errorf("quiet message has position %d of %d", i, len(order))
			}
		}
	})
}

// Attempts in one lane do not occupy all slots while messages wait in another lane.
func TestLanesShareSlots(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const queue, concurrency = "work", 4
		all := topology.Lanes{Count: 2}.Queues(queue)
		began, gate := make(chan string, 100), make(chan string)
		stop := start(t, dial(), reprise.WorkerConfig{
			Queue: queue, Lanes: len(all), Concurrency: concurrency,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				began <- m.MessageID
				<-gate
				return nil
			}),
		})
		publish := func(n int) {
			for range 20 {
				r.publish("", all[n], amqp.Publishing{MessageId: fmt.Sprint(n)})
			}
			time.Sleep(time.Second) // the worker receives them
		}
		publish(0)
		for range concurrency {
			<-began
		}
		publish(1)
		for range concurrency / 2 {
			gate <- ""
			if lane := <-began; lane != "1" {
				t.Errorf("attempt of lane %s began although lane 1 has fewer", lane)
			}
		}
		close(gate)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A retry returns to its lane, also without a worker. After the last attempt, the common failed queue has the message, whose headers
// name the lane.
func TestLanesRetryInTheirLane(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		l := newLaned(t, b, 4)
		c := dial(t, b.URL)
		var failed atomic.Int32
		fails := func(context.Context, *reprise.Delivery) error {
			failed.Add(1)
			return errors.New("closed")
		}
		stop := start(t, c, l.config(fails))
		for i, key := range l.keys() {
			l.publishTo(c, key, fmt.Sprint(i))
		}
		testkit.Eventually(t, timeout, func() bool { return failed.Load() >= int32(l.Count) })
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, timeout, func() error {
			for _, lane := range append(l.all(), l.queue+".failed") {
				if n := l.depth(lane); lane != l.queue+".failed" && n+l.depth(l.queue+".failed") == 0 {
					return fmt.Errorf("queue %s: got %d messages, want 1", lane, n)
				}
			}
			return nil
		})
		start(t, c, l.config(fails))
		for range l.Count {
			d := l.take(l.queue + ".failed")
			want := l.all()[int(d.MessageId[0]-'0')]
			if d.Headers[topology.HeaderQueue] != want || d.Headers[topology.HeaderRoutingKey] != want || d.Headers[topology.HeaderAttempts] != int64(3) {
				t.Errorf("message %s: got headers %v, want queue and key %s after 3 attempts", d.MessageId, d.Headers, want)
			}
		}
	})
}

// Several processes share all lanes. No message is lost although their connections are cut and attempts fail.
func TestLanesLoseNothing(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages, processes = 240, 2
		l := newLaned(t, b, 4)
		keys, publisher := l.keys(), dial(t, b.URL)
		var mu sync.Mutex
		attempts, done := map[string]int{}, map[string]bool{}
		lanes := make([]map[string]bool, processes)
		var proxies []*testkit.Proxy
		var stops []func() error
		for n := range processes {
			lanes[n] = map[string]bool{}
			proxies = append(proxies, testkit.NewProxy(t, b.URL))
			config := l.config(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				lanes[n][m.RoutingKey] = true
				if attempts[m.MessageID]++; attempts[m.MessageID] == 1 && strings.HasSuffix(m.MessageID, "7") {
					return errors.New("fails once")
				}
				done[m.MessageID] = true
				return nil
			})
			config.Policy.MaxAttempts, config.Concurrency, config.CrashLimit = 0, 4, -1 // each cut counts as a crash
			stops = append(stops, start(t, dial(t, proxies[n].URL()), config))
		}
		for i := range messages {
			l.publishTo(publisher, keys[i%len(keys)], fmt.Sprint(i))
			if i%20 == 19 {
				proxies[i/20%processes].Cut()
			}
		}
		testkit.Eventually(t, timeout, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(done) != messages || len(lanes[0]) != l.Count || len(lanes[1]) != l.Count {
				return fmt.Errorf("got %d of %d messages, and %d and %d lanes; %d messages failed",
					len(done), messages, len(lanes[0]), len(lanes[1]), l.depth(l.queue+".failed"))
			}
			return nil
		})
		testkit.Eventually(t, timeout, func() error { // a message whose acknowledgement was lost is handled again
			for _, queue := range append(l.all(), l.queue+".failed") {
				if n := l.depth(queue); n > 0 {
					return fmt.Errorf("queue %s: got %d messages, want none", queue, n)
				}
			}
			return nil
		})
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A stop waits for running handlers, and returns the other messages to their lanes.
func TestLanesDrain(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		l := newLaned(t, b, 3)
		c := dial(t, b.URL)
		began, gate := make(chan struct{}, 100), make(chan struct{})
		config := l.config(func(context.Context, *reprise.Delivery) error {
			began <- struct{}{}
			<-gate
			return nil
		})
		config.Concurrency = 3
		stop := start(t, c, config)
		for _, key := range l.keys() {
			for range 5 {
				l.publishTo(c, key, "")
			}
		}
		for range config.Concurrency {
			<-began
		}
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		returned := func() error {
			total := 0
			for _, lane := range l.all() {
				total += l.depth(lane)
			}
			if total != 12 {
				return fmt.Errorf("got %d messages in the lanes, want 12", total)
			}
			return nil
		}
		testkit.Eventually(t, timeout, returned)
		close(gate)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, timeout, returned)
	})
}

// The broker cancels the consumer of a deleted lane. The worker declares the lane again, and consumes all lanes.
func TestLanesDeletedLane(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		l := newLaned(t, b, 3)
		c := dial(t, b.URL)
		var handled sync.Map
		start(t, c, l.config(func(_ context.Context, m *reprise.Delivery) error {
			handled.Store(m.MessageID, true)
			return nil
		}))
		if _, err := l.QueueDelete(l.all()[1], false, false, false); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, timeout, func() bool { return l.depth(l.all()[1]) == 0 })
		for i, key := range l.keys() {
			l.publishTo(c, key, fmt.Sprint(i))
		}
		testkit.Eventually(t, timeout, func() error {
			for i := range l.Count {
				if _, ok := handled.Load(fmt.Sprint(i)); !ok {
					return fmt.Errorf("message of lane %d was not handled", i)
				}
			}
			return nil
		})
	})
}

// A message that terminates its process reaches the crash limit alone. The messages that were delivered with it, in any lane, are
// handled.
func TestLanesParkOnlyPoisonMessage(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const messages, limit = 20, 5
		l := newLaned(t, b, 3)
		keys := l.keys()
		l.declare(dial(t, b.URL), l.Topology(l.queue))
		for i := range messages {
			id := fmt.Sprint(i)
			if i == 4 {
				id = "poison"
			}
			l.publish("", reprise.LaneQueue(l.queue, keys[i%3], l.Count), amqp.Publishing{MessageId: id, Body: []byte(id)})
		}
		proxy := testkit.NewProxy(t, b.URL)
		var handled sync.Map
		config := l.config(func(_ context.Context, m *reprise.Delivery) error {
			if m.MessageID == "poison" {
				proxy.Cut()
				return nil // the acknowledgement is lost
			}
			handled.Store(m.MessageID, true)
			return nil
		})
		config.Concurrency, config.CrashLimit, config.Policy.MaxAttempts = 4, limit, 0
		start(t, dial(t, proxy.URL()), config)
		if d := l.take(l.queue + ".failed"); d.MessageId != "poison" {
			t.Errorf("parked: got message %s, want poison", d.MessageId)
		}
		testkit.Eventually(t, timeout, func() error {
			for i := range messages {
				if _, ok := handled.Load(fmt.Sprint(i)); !ok && i != 4 {
					return fmt.Errorf("message %d was not handled", i)
				}
			}
			return nil
		})
		if n := l.depth(l.queue + ".failed"); n != 0 {
			t.Errorf("failed queue: got %d further messages, want none", n)
		}
	})
}

func TestLanesValidate(t *testing.T) {
	valid := reprise.WorkerConfig{Queue: "orders", Lanes: 8, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })}
	for name, change := range map[string]func(*reprise.WorkerConfig){
		"":                func(*reprise.WorkerConfig) {},
		"ParkIn":          func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.ParkIn{Queue: "dead"} },
		"between 0":       func(c *reprise.WorkerConfig) { c.Lanes = topology.MaxLanes + 1 },
		"got 0 and 8":     func(c *reprise.WorkerConfig) { c.Lanes, c.Strategy.Route = 0, topology.Lanes{Count: 8} },
		"topology.Levels": func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.Levels{} },
		"OrderBy":         func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{Partitions: 8} },
		"Lease":           func(c *reprise.WorkerConfig) { c.Lease = time.Minute },
		"Debounce": func(c *reprise.WorkerConfig) {
			c.Debounce = &reprise.Debounce{Window: time.Second, Key: reprise.ContentKey}
		},
		"Acked":    func(c *reprise.WorkerConfig) { c.Acked = func(*reprise.Delivery, error) {} },
		"Priority": func(c *reprise.WorkerConfig) { c.Priority = 1 },
		"Deaths":   func(c *reprise.WorkerConfig) { c.Strategy.Marks = topology.Deaths{} },
		"at most":  func(c *reprise.WorkerConfig) { c.Queue = strings.Repeat("q", 240) },
	} {
		c := valid
		change(&c)
		switch err := c.Validate(); {
		case name == "" || name == "ParkIn":
			if err != nil {
				t.Errorf("%s: got %v", name, err)
			}
		case err == nil || !strings.Contains(err.Error(), name):
			t.Errorf("got error %v, want %q", err, name)
		}
	}
}
