package presettest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

func ExampleCDNPurge() {
	// The queues of an existing system may have other names.
	p := preset.CDNPurge{Exchange: "assets", Queue: "purger", RoutingKeys: []string{"image", "page"}, Jitter: -1}
	route := p.Strategy().Route

	d := topology.Delivery{Queue: "purger", Exchange: "assets", RoutingKey: "page"}
	hop, err := route.Wait(d, 0)
	fmt.Println(hop.Exchange, hop.RoutingKey, hop.TTL, err)

	d.Headers = topology.Table{"x-death": []any{ // as RabbitMQ sets it when the message expires in the wait queue
		topology.Table{"queue": "purger.wait", "reason": "expired", "count": int64(1), "original-expiration": "10000"},
	}}
	hop, err = route.Wait(d, 0)
	fmt.Println(hop.Exchange, hop.RoutingKey, hop.TTL, err)
	// Output:
	// assets.wait page 10s <nil>
	// assets.wait page 30s <nil>
}

// The test takes five days of virtual time.
func TestCDNPurgeSchedule(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "cdn-purge", Strategy: preset.CDNPurge{Jitter: -1}.Strategy(),
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errQueueFull }),
		})
		b.Publish(t, &reprise.Message{Exchange: "cdn-purge", RoutingKey: "directory"})
		b.Drain(t)
		var want []time.Duration
		for delay := 10 * time.Second; len(want) < reprise.DefaultMaxAttempts-1; delay = min(3*delay, 12*time.Hour) {
			want = append(want, delay)
		}
		if diff := cmp.Diff(want, w.Attempts().Delays()); diff != "" {
			t.Errorf("delays: -want +got:\n%s", diff)
		}
		if parked := b.Messages(t, "cdn-purge.failed"); len(parked) != 1 {
			t.Errorf("%d messages were parked, want 1", len(parked))
		}
	})
}

// After the delay has reached Max, only the worker's count of attempts limits the retries.
func TestCDNPurgeRetriesAtMaxUntilLimit(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "cdn-purge", Strategy: preset.CDNPurge{Jitter: -1, Max: time.Minute}.Strategy(), Policy: reprise.Policy{MaxAttempts: 6},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errQueueFull }),
		})
		b.Publish(t, &reprise.Message{Exchange: "cdn-purge", RoutingKey: "url"})
		b.Drain(t)
		want := []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, time.Minute, time.Minute}
		if diff := cmp.Diff(want, w.Attempts().Delays()); diff != "" {
			t.Errorf("delays: -want +got:\n%s", diff)
		}
	})
}

// Workers with the default strategy replace workers of the design. Waiting messages of the design return to the new
// workers with the number of their attempts.
func TestCDNPurgeMigratesToDefaultStrategy(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		fails := reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errQueueFull })
		b.Declare(t, preset.CDNPurge{}.Topology())
		designed := b.Work(t, reprise.WorkerConfig{Queue: "cdn-purge", Handler: fails, Strategy: preset.CDNPurge{}.Strategy()})
		b.Publish(t, &reprise.Message{Exchange: "cdn-purge", RoutingKey: "tag", MessageID: "m"})
		designed.Await(t, 2)
		if err := designed.Stop(); err != nil {
			t.Fatal(err)
		}
		w := b.Work(t, reprise.WorkerConfig{Queue: "cdn-purge", Handler: fails, Policy: reprise.Policy{MaxAttempts: 4}})
		b.Drain(t)
		for i, a := range w.Attempts() {
			if a.Delivery.Attempt != 3+i || a.Delivery.RoutingKey != "tag" || len(a.Delivery.Errors) != 2+i {
				t.Errorf("attempt %d: got attempt %d of %s with %d errors, want attempt %d of tag with %d errors", 3+i, a.Delivery.Attempt, a.Delivery.RoutingKey, len(a.Delivery.Errors), 3+i, 2+i)
			}
		}
		if n := b.Depth(t, "cdn-purge.failed"); len(w.Attempts()) != 2 || n != 1 {
			t.Errorf("got %d further attempts and %d parked messages, want 2 and 1", len(w.Attempts()), n)
		}
	})
}

func TestCDNPurgeTopology(t *testing.T) {
	want := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "cdn-purge", Kind: "direct"},
			{Name: "cdn-purge.wait", Kind: "direct"},
		},
		Queues: []topology.Queue{
			{Name: "cdn-purge", IfAbsent: true, Args: topology.Table{}},
			{Name: "cdn-purge.wait", Args: topology.Table{"x-dead-letter-exchange": "cdn-purge"}},
			{Name: "cdn-purge.failed", Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2147483647)}},
		},
		Bindings: []topology.Binding{
			{Exchange: "cdn-purge", Queue: "cdn-purge", RoutingKey: "url"},
			{Exchange: "cdn-purge.wait", Queue: "cdn-purge.wait", RoutingKey: "url"},
			{Exchange: "cdn-purge", Queue: "cdn-purge", RoutingKey: "directory"},
			{Exchange: "cdn-purge.wait", Queue: "cdn-purge.wait", RoutingKey: "directory"},
			{Exchange: "cdn-purge", Queue: "cdn-purge", RoutingKey: "tag"},
			{Exchange: "cdn-purge.wait", Queue: "cdn-purge.wait", RoutingKey: "tag"},
		},
		NoSchedule: []topology.Address{{Exchange: "cdn-purge"}, {Key: "cdn-purge"}},
	}
	if diff := cmp.Diff(want, preset.CDNPurge{}.Topology()); diff != "" {
		t.Errorf("topology: -want +got:\n%s", diff)
	}

	got := preset.CDNPurge{
		Exchange: "assets", Queue: "purger", RoutingKeys: []string{"purge.#"}, Kind: "topic", WaitKind: "fanout",
		TransientExchanges: true, QueueType: "quorum", WaitArgs: topology.Table{"x-max-length": int64(10)},
	}.Topology()
	want = topology.Topology{
		Exchanges: []topology.Exchange{{Name: "assets", Kind: "topic", Transient: true}, {Name: "assets.wait", Kind: "fanout", Transient: true}},
		Queues: []topology.Queue{
			{Name: "purger", IfAbsent: true, Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)}},
			{Name: "purger.wait", Args: topology.Table{"x-dead-letter-exchange": "assets", "x-queue-type": "quorum", "x-max-length": int64(10)}},
			{Name: "purger.failed", Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)}},
		},
		Bindings: []topology.Binding{
			{Exchange: "assets", Queue: "purger", RoutingKey: "purge.#"},
			{Exchange: "assets.wait", Queue: "purger.wait", RoutingKey: "purge.#"},
		},
		NoSchedule: []topology.Address{{Exchange: "assets"}, {Key: "purger"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology: -want +got:\n%s", diff)
	}
}

func TestCDNPurgeStrategy(t *testing.T) {
	s := preset.CDNPurge{}.Strategy()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.ValidateQueue("cdn-purge"); err != nil {
		t.Error(err)
	}
	if err := s.ValidateQueue("elsewhere"); err == nil {
		t.Error("ValidateQueue accepted a work queue that the main exchange does not reach")
	}
	d := topology.Delivery{Queue: "cdn-purge", Exchange: "cdn-purge", RoutingKey: "tag"}
	hop, err := s.Route.Wait(d, time.Hour)
	if err != nil || hop.Exchange != "cdn-purge.wait" || hop.RoutingKey != "tag" || hop.TTL != 10*time.Second {
		t.Errorf("Wait: got %+v, %v; want 10s through cdn-purge.wait with key tag", hop, err)
	}
	for _, expired := range []struct {
		last     string
		from, to time.Duration
	}{{"10000", 27 * time.Second, 33 * time.Second}, {"31000", 83700 * time.Millisecond, 102300 * time.Millisecond}} {
		d.Headers = topology.Table{"x-death": []any{topology.Table{"queue": "cdn-purge.wait", "reason": "expired", "original-expiration": expired.last}}}
		seen := map[time.Duration]bool{}
		for range 100 {
			hop, err := s.Route.Wait(d, 0)
			if err != nil || hop.TTL < expired.from || hop.TTL > expired.to {
				t.Errorf("Wait after %s: got %+v, %v; want %s to %s", expired.last, hop, err, expired.from, expired.to)
			}
			seen[hop.TTL] = true
		}
		if len(seen) < 10 {
			t.Errorf("Wait after %s: got %d different delays, want at least 10", expired.last, len(seen))
		}
	}
	if hop := s.Route.Failed(d); hop.Exchange != "" || hop.RoutingKey != "cdn-purge.failed" || hop.TTL != 0 {
		t.Errorf("Failed: got %+v, want the queue cdn-purge.failed", hop)
	}
	// A message that was published through the default exchange also returns through the default exchange.
	hop, err = s.Route.Wait(topology.Delivery{Queue: "cdn-purge", RoutingKey: "cdn-purge"}, 0)
	if err != nil || hop.Exchange != "cdn-purge.wait.aside" || hop.RoutingKey != "cdn-purge" || hop.TTL != 10*time.Second {
		t.Errorf("Wait for a message with the name of the queue: got %+v, %v; want 10s through cdn-purge.wait.aside", hop, err)
	}
	// The wait exchange has no binding for this key.
	mixed := preset.CDNPurge{Kind: "fanout", WaitKind: "direct"}.Strategy().Route
	if hop, err := mixed.Wait(topology.Delivery{Queue: "cdn-purge", RoutingKey: "host"}, 0); err != nil || hop.Exchange != "cdn-purge.wait.aside" {
		t.Errorf("Wait for another key: got %+v, %v; want exchange cdn-purge.wait.aside", hop, err)
	}
}

func TestCDNPurgeValidate(t *testing.T) {
	for _, p := range []preset.CDNPurge{
		{},
		{Exchange: "a", Queue: "b", WaitExchange: "c", WaitQueue: "d", FailedQueue: "e", RoutingKeys: []string{"#"}, Kind: "topic", WaitKind: "fanout"},
		{First: time.Millisecond, Factor: 1, Jitter: -1, Max: time.Second, QueueType: "classic"},
		{QueueType: "quorum", WaitArgs: topology.Table{"x-dead-letter-exchange": "cdn-purge"}},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []preset.CDNPurge{
		{First: -1},
		{First: time.Microsecond},
		{Factor: 0.5},
		{Jitter: 1},
		{Max: time.Second},
		{WaitExchange: "cdn-purge"},
		{WaitQueue: "cdn-purge"},
		{FailedQueue: "cdn-purge.wait"},
		{Kind: "headers"},
		{Kind: "x-delayed-message"},
		{QueueType: "stream"},
		{WaitArgs: topology.Table{"x-dead-letter-exchange": "elsewhere"}},
		{WaitArgs: topology.Table{"x-dead-letter-routing-key": "url"}},
	} {
		if err := p.Validate(); err == nil {
			t.Errorf("Validate of %+v: got nil, want an error", p)
		}
	}
	// Otherwise the copies would be in the work queue immediately, and expire there.
	if err := (preset.CDNPurge{WaitExchange: "cdn-purge"}).Strategy().Validate(); err == nil {
		t.Error("Validate accepted a strategy whose copies do not wait")
	}
}
