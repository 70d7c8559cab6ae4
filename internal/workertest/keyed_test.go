package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// cleanKeyed deletes the queues of a worker with OrderBy at the end of the test.
func cleanKeyed(t testing.TB, url, queue string, partitions int) {
	t.Helper()
	names := []string{queue + ".failed", queue + ".part.members"}
	for n := range partitions {
		name := fmt.Sprintf("%s.part.%d-of-%d", queue, n, partitions)
		names = append(names, name, name+".held")
	}
	newRaw(t, url).deleteQueues(names...)
}

// Keys keep their order although attempts fail and the connections of all processes are cut.
func TestKeyedWorkersKeepOrder(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions, keys, messages, processes, cuts = 4, 10, 12, 3, 12
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, partitions)
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
		cleanKeyed(t, b.URL, queue, partitions)
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

// The broker may count processes that have stopped, so that the others must own more than their quota. They keep these partitions,
// instead of releasing and receiving them in turn.
func TestKeyedWorkerKeepsPartitionsThatNobodyWants(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions, messages, most = 4, 300, 12
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, partitions)
		c, h := dial(t, b.URL), newScript(func(*reprise.Delivery) error { return nil })
		config := reprise.WorkerConfig{Queue: queue, OrderBy: &reprise.Keyed{Partitions: partitions}, Handler: h}
		if err := start(t, c, config)(); err != nil { // declares the queues
			t.Fatal(err)
		}
		r := newRaw(t, b.URL)
		for range 2 {
			if _, err := r.Consume(queue+".part.members", "", false, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
		}
		start(t, c, config)
		for n := range messages {
			if err := c.PublishKeyed(t.Context(), queue, partitions, fmt.Sprint(n), &reprise.Message{}); err != nil {
				t.Fatal(err)
			}
			h.wait(t, n+1)
		}
		if n := c.log.count("partition owned"); n > most {
			t.Errorf("the partitions have changed their owner %d times, want at most %d", n, most)
		}
	})
}

// A message of another program whose headers almost fill a frame cannot wait behind an earlier message of its key, because a copy
// has additional headers. It is parked, and the key continues.
func TestKeyedWorkerParksMessageThatCannotWait(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, 1)
		h := newScript(func(m *reprise.Delivery) error {
			if string(m.Body) == "first" && m.Attempt == 1 {
				return errScripted
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, OrderBy: &reprise.Keyed{Partitions: 1, Header: "key"},
			Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)}, Handler: h,
		})
		r := newRaw(t, b.URL)
		partition := queue + ".part.0-of-1"
		r.publish("", partition, amqp.Publishing{Body: []byte("first")})
		r.publish("", partition, amqp.Publishing{Body: []byte("large"), Headers: amqp.Table{"filler": strings.Repeat("x", 130_950)}})
		r.publish("", partition, amqp.Publishing{Body: []byte("last")})
		if got := r.take(queue + ".failed"); string(got.Body) != "large" {
			t.Errorf("got %q in the failed queue, want the large message", got.Body)
		}
		if err := dial(t, b.URL).ControlKey(t.Context(), reprise.KeyControl{Queue: queue, Partitions: 1, Act: reprise.RetryFirst}); err != nil {
			t.Fatal(err)
		}
		if got := h.wait(t, 3); string(got[1].Body) != "first" || string(got[2].Body) != "last" {
			t.Errorf("got %q and %q after the failure, want first and last", got[1].Body, got[2].Body)
		}
	})
}

// Clients encode the same text as a string or as a byte array. Both are the same key.
func TestKeyedReadsEncodingsOfKey(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, 1)
		h := newScript(func(m *reprise.Delivery) error {
			if string(m.Body) == "first" {
				return errScripted
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, OrderBy: &reprise.Keyed{Partitions: 1, Header: "key"},
			Policy: reprise.Policy{Backoff: backoff.Fixed(time.Hour)}, Handler: h,
		})
		r := newRaw(t, b.URL)
		partition := queue + ".part.0-of-1"
		r.publish("", partition, amqp.Publishing{Body: []byte("first"), Headers: amqp.Table{"key": "a"}})
		r.publish("", partition, amqp.Publishing{Body: []byte("second"), Headers: amqp.Table{"key": []byte("a")}})
		r.publish("", partition, amqp.Publishing{Body: []byte("other"), Headers: amqp.Table{"key": "b"}})
		if got := h.wait(t, 2); string(got[1].Body) != "other" {
			t.Errorf("got %q while the first message with the key waits, want other", got[1].Body)
		}
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
		"no partitions": func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{} },
		"too many held": func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{Partitions: 1, MaxHeld: 65535} },
		"ack first":     func(c *reprise.WorkerConfig) { c.Order = reprise.AckThenPublish },
		"acked":         func(c *reprise.WorkerConfig) { c.Acked = func(*reprise.Delivery, error) {} },
		"priority":      func(c *reprise.WorkerConfig) { c.Priority = 1 },
		"negative rate": func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{Partitions: 1, Rate: -1} },
		"no rate":       func(c *reprise.WorkerConfig) { c.OrderBy = &reprise.Keyed{Partitions: 1, Burst: 2} },
		"endless burst": func(c *reprise.WorkerConfig) {
			c.OrderBy = &reprise.Keyed{Partitions: 1, Rate: 1, Per: 3 * time.Hour, Burst: 1e6}
		},
		"requeuing":      func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.Requeuing{} },
		"dead-lettering": func(c *reprise.WorkerConfig) { c.Strategy.Route = topology.DeadLettering{Delay: time.Second} },
	} {
		c := valid
		if change(&c); c.Validate() == nil {
			t.Errorf("%s: the configuration is accepted", name)
		}
	}
}

// A pause remains visible when a partition gets a new owner, and ends when the operator resumes the queue.
func TestKeyedWorkersReportPause(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // requires RabbitMQ 4.0
		}
		const partitions = 3
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, partitions)
		newRaw(t, b.URL).deleteQueues(protocol.PauseQueuePrefix + queue)
		list, _ := watching(t, dial(t, b.URL))
		var handled atomic.Int32
		proxies := []*testkit.Proxy{testkit.NewProxy(t, b.URL), testkit.NewProxy(t, b.URL)}
		for _, proxy := range proxies {
			start(t, dial(t, proxy.URL(), announced), reprise.WorkerConfig{
				Queue: queue, OrderBy: &reprise.Keyed{Partitions: partitions},
				Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { handled.Add(1); return nil }),
			})
		}
		listed(t, list, queue, 2, protocol.WorkerConsuming)
		operator := dial(t, b.URL)
		control(t, operator, protocol.Command{Do: protocol.DoPause, Queue: queue})
		listed(t, list, queue, 2, protocol.WorkerPaused)
		proxies[0].Cut() // the other process subscribes to all partitions again
		for n := range 2 * partitions {
			if err := operator.PublishKeyed(t.Context(), queue, partitions, fmt.Sprint(n), &reprise.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		listed(t, list, queue, 2, protocol.WorkerPaused)
		if n := handled.Load(); n != 0 {
			t.Errorf("paused workers handled %d messages", n)
		}
		control(t, operator, protocol.Command{Do: protocol.DoResume, Queue: queue})
		listed(t, list, queue, 2, protocol.WorkerConsuming)
		testkit.Eventually(t, timeout, func() error {
			if n := handled.Load(); n < 2*partitions {
				return fmt.Errorf("got %d handled messages", n)
			}
			return nil
		})
	})
}

// All workers and publishers must have the same settings, because a key would otherwise be in several partitions.
func TestKeyedRefusesOtherPartitions(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		queue := testkit.Name(t, "keyed")
		config := func(keyed reprise.Keyed) reprise.WorkerConfig {
			return reprise.WorkerConfig{
				Queue: queue, OrderBy: &keyed,
				Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
			}
		}
		refused := func(want string, keyed reprise.Keyed) {
			t.Helper()
			w, err := reprise.NewWorker(dial(t, b.URL).Client, config(keyed))
			if err != nil {
				t.Fatal(err)
			}
			err = w.Run(t.Context())
			if _, ok := errors.AsType[*reprise.DeclareError](err); !ok || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want a DeclareError with %q", keyed, err, want)
			}
			if err := w.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("check of %+v: got %v, want an error with %q", keyed, err, want)
			}
		}
		valid := reprise.Keyed{Partitions: 2, Header: "order-id"}
		if b.IsRabbitMQ && b.Version < "4" {
			refused("must be RabbitMQ 4.0 or later", valid)
			return
		}
		cleanKeyed(t, b.URL, queue, valid.Partitions)
		start(t, dial(t, b.URL), config(valid))
		publisher := dial(t, b.URL)
		testkit.Eventually(t, timeout, func() error {
			return publisher.PublishKeyed(t.Context(), queue, 2, "a", &reprise.Message{})
		})
		refused("another number of partitions", reprise.Keyed{Partitions: 3, Header: "order-id"})
		refused("another number of partitions", reprise.Keyed{Partitions: 2, Header: "customer"})
		refused("another number of partitions", reprise.Keyed{Partitions: 2})
		err := publisher.PublishKeyed(t.Context(), queue, 3, "a", &reprise.Message{})
		if !errors.Is(err, reprise.ErrUnroutable) || !strings.Contains(err.Error(), "3 partitions") {
			t.Errorf("publication with 3 partitions: got %v, want ErrUnroutable", err)
		}
	})
}

// Run ends when the client is closed.
func TestKeyedWorkerEndsWithClient(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		h := newScript(func(*reprise.Delivery) error { return reprise.RetryAfter(time.Hour, errors.New("it fails")) })
		w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{Queue: "work", OrderBy: &reprise.Keyed{Partitions: 2}, Handler: h})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		c.log.wait(t, "consuming", 1)
		if err := c.PublishKeyed(t.Context(), "work", 2, "a", &reprise.Message{}); err != nil {
			t.Fatal(err)
		}
		h.wait(t, 1)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("Run: got %v, want ErrClosed", err)
		}
	})
}
