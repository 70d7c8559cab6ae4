package topologytest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

func buckets() *rapid.Generator[topology.Buckets] {
	return rapid.Custom(func(t *rapid.T) topology.Buckets {
		b := topology.Buckets{
			Base:   time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "base")) * time.Millisecond,
			Growth: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(1.001, 10)).Draw(t, "growth"),
		}
		if b.Validate() != nil {
			t.Skip("invalid")
		}
		return b
	})
}

func delays() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(
		rapid.Int64Range(0, int64(topology.MaxDelay)),
		rapid.Int64Range(0, int64(10*time.Second)),
	), func(n int64) time.Duration { return time.Duration(n) })
}

// growth returns the effective growth of b.
func growth(b topology.Buckets) float64 {
	if b.Growth == 0 {
		return topology.DefaultBucketsGrowth
	}
	return b.Growth
}

func TestBucketsLimitDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, delay := buckets().Draw(t, "buckets"), delays().Draw(t, "delay")
		lower, upper := b.Bounds(delay)
		hop, err := b.Wait(topology.Delivery{Queue: "q"}, delay)
		if err != nil {
			t.Fatal(err)
		}
		if hop.TTL < delay || hop.TTL-delay > time.Millisecond {
			t.Fatalf("expiration: got %d, want delay %d, rounded up to milliseconds", hop.TTL, delay)
		}
		whole := (delay + time.Millisecond - 1).Truncate(time.Millisecond)
		if whole < lower || whole >= upper {
			t.Fatalf("delay %s is outside of its bucket [%s, %s)", whole, lower, upper)
		}
		base := b.Base
		if base == 0 {
			base = topology.DefaultBucketsBase
		}
		if whole >= base && float64(upper) > float64(whole)*growth(b) {
			t.Fatalf("upper bound: got %s, want at most %s × %v", upper, whole, growth(b))
		}
		if lower == 0 != (whole < base) {
			t.Fatalf("delay %s, base %s: got bucket [%s, %s), want a lower bound of 0 only below the base", whole, base, lower, upper)
		}
	})
}

// A queue expires messages only at its head. Therefore a message leaves the queue only when this message and all earlier
// messages have expired.
func TestBucketsLimitLateness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "buckets")
		type message struct{ published, due time.Duration }
		queues := map[string][]message{}
		now := time.Duration(0)
		for range rapid.IntRange(1, 50).Draw(t, "messages") {
			now += time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "pause"))
			delay := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "delay"))
			hop, err := b.Wait(topology.Delivery{Queue: "q"}, delay)
			if err != nil {
				t.Fatal(err)
			}
			lower, upper := b.Bounds(delay)
			left := now + hop.TTL
			for _, before := range queues[hop.RoutingKey] {
				left = max(left, before.due)
			}
			queues[hop.RoutingKey] = append(queues[hop.RoutingKey], message{now, now + hop.TTL})
			if waited := left - now; waited < delay || waited-hop.TTL > upper-lower || waited > upper {
				t.Fatalf("wait for a delay of %s in bucket [%s, %s): got %s, want within the bucket", delay, lower, upper, waited)
			}
		}
	})
}

// Two buckets have the same name if and only if they have the same bounds, even if their settings differ.
func TestBucketNamesContainBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, c := buckets().Draw(t, "one"), buckets().Draw(t, "other")
		delay := delays().Draw(t, "delay")
		x, _ := b.Wait(topology.Delivery{Queue: "q"}, delay)
		y, _ := c.Wait(topology.Delivery{Queue: "q"}, delay)
		l1, u1 := b.Bounds(delay)
		l2, u2 := c.Bounds(delay)
		if (x.RoutingKey == y.RoutingKey) != (l1 == l2 && u1 == u2) {
			t.Fatalf("names and bounds differ: %q [%s, %s) and %q [%s, %s)", x.RoutingKey, l1, u1, y.RoutingKey, l2, u2)
		}
		if err := x.Topology.Merge(y.Topology).Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBucketsUpToADay(t *testing.T) {
	names := map[string]bool{}
	for d := time.Duration(0); d <= 24*time.Hour; d += 50 * time.Millisecond {
		lower, upper := topology.Buckets{}.Bounds(d)
		names[fmt.Sprint(lower, upper)] = true
	}
	if len(names) != 52 { // 51 buckets and bucket 0
		t.Errorf("got %d buckets, want 52", len(names))
	}
}

func TestBucketsHops(t *testing.T) {
	b := topology.Buckets{Base: 100 * time.Millisecond, Growth: 2}
	hop, err := b.Wait(topology.Delivery{Queue: "orders", RoutingKey: "other"}, 250*time.Millisecond+1)
	if err != nil {
		t.Fatal(err)
	}
	want := topology.Hop{
		RoutingKey: "orders.wait.200-400", TTL: 251 * time.Millisecond, Delay: 251 * time.Millisecond,
		Topology: topology.Topology{
			Queues: []topology.Queue{{Name: "orders.wait.200-400", Args: topology.Table{
				"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders",
				"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			}}},
		},
	}
	if diff := cmp.Diff(want, hop); diff != "" {
		t.Error(diff)
	}
	failed := b.Failed(topology.Delivery{Queue: "orders"})
	if diff := cmp.Diff(topology.Hop{
		RoutingKey: "orders.failed",
		Topology: topology.Topology{Queues: []topology.Queue{{
			Name: "orders.failed", Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)},
		}}},
	}, failed); diff != "" {
		t.Error(diff)
	}
	if err := b.Topology("orders").Validate(); err != nil {
		t.Error(err)
	}
}

func TestBucketsLimitDelayToMaxDelay(t *testing.T) {
	b := topology.Buckets{}
	want, err := b.Wait(topology.Delivery{Queue: "q"}, topology.MaxDelay)
	if err != nil || want.TTL != topology.MaxDelay {
		t.Errorf("longest delay: got %+v, %v, want an expiration of %s", want, err, topology.MaxDelay)
	}
	for _, delay := range []time.Duration{topology.MaxDelay + 1, math.MaxInt64} {
		got, err := b.Wait(topology.Delivery{Queue: "q"}, delay)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// Work queues do not share wait queues, so a blocked work queue does not delay the retries of other work queues.
func TestWorkQueuesDoNotShareWaitQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, delay := buckets().Draw(t, "buckets"), delays().Draw(t, "delay")
		x, _ := b.Wait(topology.Delivery{Queue: "x"}, delay)
		y, _ := b.Wait(topology.Delivery{Queue: "y"}, delay)
		for _, hop := range []topology.Hop{x, y} {
			if len(hop.Topology.Queues) != 1 || hop.Exchange != "" || hop.RoutingKey != hop.Topology.Queues[0].Name {
				t.Fatalf("hop: got %+v, want the default exchange and one queue", hop)
			}
		}
		if x.RoutingKey == y.RoutingKey {
			t.Fatalf("both work queues use wait queue %q", x.RoutingKey)
		}
	})
}

// If ValidateQueue accepts the name of a work queue, the names of all its wait queues have at most 255 bytes.
func TestBucketsLimitLengthOfQueueName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := buckets().Draw(t, "buckets")
		longest := strings.Repeat("q", 255)
		for b.ValidateQueue(longest) != nil {
			longest = longest[1:]
		}
		if len(longest) < 200 {
			t.Fatalf("longest valid name: got %d bytes, want at least 200: %+v", len(longest), b)
		}
		hop, _ := b.Wait(topology.Delivery{Queue: longest}, delays().Draw(t, "delay"))
		if err := hop.Topology.Merge(b.Topology(longest)).Validate(); err != nil {
			t.Fatal(err)
		}
	})
	err := topology.Strategy{}.ValidateQueue(strings.Repeat("q", 240))
	if err == nil || !strings.Contains(err.Error(), `must have a name of at most 228 bytes: got 240 (the queue "{queue}.wait.`) {
		t.Error(err)
	}
}

func TestBucketsValidate(t *testing.T) {
	for _, tc := range []struct {
		b    topology.Buckets
		want string
	}{
		{topology.Buckets{}, ""},
		{topology.Buckets{Base: time.Microsecond}, "Buckets.Base must be whole milliseconds from 1ms to 1193h2m47.295s: got 1µs"},
		{topology.Buckets{Base: -time.Second}, "Buckets.Base must be whole milliseconds from 1ms to 1193h2m47.295s: got -1s"},
		{topology.Buckets{Growth: 1}, "Buckets.Growth must be above 1 and at most 1000: got 1 "},
		{topology.Buckets{Growth: 1.0001}, "Buckets.Growth must be at least 1.001 with a Base of 1s: got 1.0001 "},
	} {
		err := errors.Join(tc.b.Validate())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: got %v, want %q", tc.b, err, tc.want)
		}
		if s := (topology.Strategy{Route: tc.b}).Validate(); (s == nil) != (err == nil) {
			t.Errorf("%+v: Strategy.Validate: got %v, want the same result as Validate: %v", tc.b, s, err)
		}
	}
}

func TestIsWaitQueueRecognizesNames(t *testing.T) {
	for name, want := range map[string]bool{"orders.wait.0-1000": true, "orders": false, "orders.wait.": false, "orders.failed": false} {
		if got := amqpvalue.IsWaitQueue(name); got != want {
			t.Errorf("IsWaitQueue(%q): got %v, want %v", name, got, want)
		}
	}
}

// Bounds accepts all settings and delays, including settings that Validate refuses. The delay, limited to the range from
// 0 to MaxDelay, is within the bounds.
func TestBoundsAcceptAnyDelay(t *testing.T) {
	growths := []float64{0, 1, -3, 1.0000001, 1.25, 1000, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}
	bases := []time.Duration{0, -time.Second, 1, time.Millisecond, time.Second, topology.MaxDelay, math.MaxInt64, math.MinInt64}
	delays := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, time.Hour, topology.MaxDelay, topology.MaxDelay + 1, math.MaxInt64}
	for _, growth := range growths {
		for _, base := range bases {
			b := topology.Buckets{Base: base, Growth: growth}
			for _, delay := range delays {
				lower, upper := b.Bounds(delay)
				counts := min(max(0, delay), topology.MaxDelay)
				if rest := counts % time.Millisecond; rest > 0 {
					counts += time.Millisecond - rest
				}
				if !(0 <= lower && lower <= counts && counts < upper) {
					t.Errorf("%+v: delay %s is outside of its bucket [%s, %s)", b, delay, lower, upper)
				}
			}
		}
	}
}
