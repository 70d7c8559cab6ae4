package topologytest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

// The worker requeues the message without publishing a copy. The work queue counts deliveries. At its delivery limit, which
// is higher than the MaxAttempts of a usual Policy, the broker dead-letters the message to the failed queue.
func TestRequeuingPublishesNothing(t *testing.T) {
	for name, r := range map[string]topology.Route{"immediate": topology.Requeuing{}, "delayed": topology.DelayedRetry{}} {
		hop, err := r.Wait(topology.Delivery{Queue: "q", RoutingKey: "k"}, time.Hour)
		hop.Delay = 0
		if diff := cmp.Diff(topology.Hop{Way: topology.Requeue}, hop); diff != "" || err != nil {
			t.Errorf("%s: %s %v", name, diff, err)
		}
		topo := r.Topology("q")
		if err := topo.Validate(); err != nil {
			t.Error(err)
		}
		work := topo.Queues[0]
		for _, arg := range []string{"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"} {
			delete(work.Args, arg)
		}
		want := topology.Queue{Name: "q", Args: topology.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q.failed",
			"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int64(100_000),
		}}
		if diff := cmp.Diff(want, work); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if failed := r.Failed(topology.Delivery{Queue: "q"}); failed.Way != topology.Copy || failed.RoutingKey != "q.failed" {
			t.Errorf("%s: Failed: got %+v, want a copy to q.failed", name, failed)
		}
	}
}

// Without x-delivery-count, a worker could not count attempts, and the broker would redeliver a message indefinitely.
func TestRequeuingRejectsQueuesWithoutDeliveryCount(t *testing.T) {
	for _, tc := range []struct {
		name        string
		redelivered bool
		headers     topology.Table
		refused     bool
	}{
		{"first delivery", false, nil, false},
		{"classic queue", true, nil, true},
		{"classic queue, other headers", true, topology.Table{"own": 1}, true},
		{"quorum queue", true, topology.Table{"x-delivery-count": int64(1)}, false},
		{"requeued on 4.3", true, topology.Table{"x-acquired-count": int64(1)}, false},
		{"dead letter on 4.0", true, topology.Table{"x-death": []any{}}, false},
	} {
		d := topology.Delivery{Queue: "q", Redelivered: tc.redelivered, Headers: tc.headers}
		for _, r := range []topology.Route{topology.Requeuing{}, topology.DelayedRetry{}} {
			if _, err := r.Wait(d, 0); (err != nil) != tc.refused {
				t.Errorf("%s, %T: got %v, want refusal %t", tc.name, r, err, tc.refused)
			}
		}
	}
}

func TestDelayedRetryGrowsLinearly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := func(label string) time.Duration {
			return time.Duration(rapid.Int64Range(0, 1<<33).Draw(t, label)) * time.Millisecond
		}
		r := topology.DelayedRetry{Min: ms("min"), Max: ms("max")}
		if r.Validate() != nil {
			t.Skip("invalid")
		}
		least, most := r.Min, r.Max
		if least == 0 {
			least = topology.DefaultDelayedRetryMin
		}
		if most == 0 {
			most = max(least, topology.DefaultDelayedRetryMax)
		}
		count := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64()).Draw(t, "count")
		hop, err := r.Wait(topology.Delivery{Redelivered: true, Headers: topology.Table{"x-delivery-count": count}}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		want := most
		if count = max(0, count); float64(least)*(float64(count)+1) < float64(most) {
			want = least * time.Duration(count+1)
		}
		if hop.Delay != want {
			t.Fatalf("%+v, delivery %d: got delay %s, want %s", r, count, hop.Delay, want)
		}
		args := r.Topology("q").Queues[0].Args
		if args["x-delayed-retry-min"] != least.Milliseconds() || args["x-delayed-retry-max"] != most.Milliseconds() {
			t.Fatalf("%+v: got arguments %v, want %d and %d", r, args, least.Milliseconds(), most.Milliseconds())
		}
	})
}

func TestDelayedRetryValidates(t *testing.T) {
	for _, r := range []topology.DelayedRetry{
		{Min: -time.Second},
		{Min: time.Microsecond},
		{Min: topology.MaxDelay + time.Millisecond},
		{Max: time.Second}, // less than the default of Min
		{Min: time.Second, Max: time.Second - 1},
		{Max: topology.MaxDelay + time.Millisecond},
	} {
		if r.Validate() == nil {
			t.Errorf("Validate accepted %+v", r)
		}
	}
	for _, r := range []topology.DelayedRetry{{}, {Min: 2 * time.Hour}, {Min: time.Millisecond, Max: topology.MaxDelay}} {
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
	}
}
