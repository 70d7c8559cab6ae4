package topologytest

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
)

// died returns the x-death header that RabbitMQ sets after a number of retries with DeadLettering.
func died(queue string, rounds int64) []any {
	return []any{
		topology.Table{"count": rounds, "reason": "expired", "queue": queue + ".retry", "time": start, "exchange": "", "routing-keys": []any{queue + ".retry"}},
		topology.Table{"count": rounds, "reason": "rejected", "queue": queue, "time": start, "exchange": "shop", "routing-keys": []any{"order.new", "cc"}},
	}
}

// forged returns an x-death header that a publisher forges to get unlimited retries.
func forged(queue string) []any {
	return []any{topology.Table{"reason": "rejected", "queue": queue, "count": int64(1 << 40)}}
}

func TestDeathsCountRejections(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers topology.Table
		want    topology.History
		crashes int
	}{
		{"first delivery", nil, topology.History{RetriesLeft: -1}, 0},
		{
			"three retries",
			topology.Table{"x-death": died("q", 3)},
			topology.History{Attempts: 3, RetriesLeft: -1, Queue: "q", Exchange: "shop", RoutingKey: "order.new", FirstFailed: start},
			0,
		},
		{
			// RabbitMQ 4 also counts rejections as failed deliveries.
			"three retries and a crash",
			topology.Table{"x-death": died("q", 3), "x-delivery-count": int64(4)},
			topology.History{Attempts: 3, RetriesLeft: -1, Queue: "q", Exchange: "shop", RoutingKey: "order.new", FirstFailed: start},
			1,
		},
		{
			// RabbitMQ 3.10 restarts x-delivery-count in each queue.
			"count is not negative",
			topology.Table{"x-death": died("q", 3), "x-delivery-count": int64(1)},
			topology.History{Attempts: 3, RetriesLeft: -1, Queue: "q", Exchange: "shop", RoutingKey: "order.new", FirstFailed: start},
			0,
		},
		// A publisher can forge a rejection in another queue. This rejection must not hide crashes.
		{"rejected in another queue", topology.Table{"x-death": forged("other"), "x-delivery-count": int64(3)}, topology.History{RetriesLeft: -1}, 3},
		{
			// A rejection in this queue, even if forged, counts as an attempt instead of a crash.
			"forged rejection in this queue",
			topology.Table{"x-death": forged("q"), "x-delivery-count": int64(3)},
			topology.History{Attempts: math.MaxInt32 - 1, RetriesLeft: -1},
			0,
		},
		{
			// A parked message of another queue was moved to this queue. The trail of the other queue must not hide the
			// count of this queue.
			"trail of another queue",
			topology.Table{"x-death": died("q", 2), "x-reprise-attempts": int64(10), "x-reprise-queue": "other"},
			topology.History{Attempts: 2, RetriesLeft: -1, Queue: "q", Exchange: "shop", RoutingKey: "order.new", FirstFailed: start},
			0,
		},
		{
			"trail of this queue",
			topology.Table{
				"x-death": died("q", 2), "x-reprise-attempts": int64(4), "x-reprise-queue": "q", "x-reprise-exchange": "x", "x-reprise-routing-key": "k",
				"x-reprise-first-failed": start.Add(-time.Hour),
			},
			topology.History{Attempts: 6, RetriesLeft: -1, Queue: "q", Exchange: "x", RoutingKey: "k", FirstFailed: start.Add(-time.Hour)},
			0,
		},
	} {
		d := topology.Delivery{Queue: "q", Redelivered: true, Headers: tc.headers}
		if diff := cmp.Diff(tc.want, topology.Deaths{}.Read(d)); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if n := crashCount(topology.Deaths{}, d); n != tc.crashes {
			t.Errorf("%s: got %d crashes, want %d", tc.name, n, tc.crashes)
		}
	}
}

func TestDeliveriesReadDeliveryCount(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers topology.Table
		want    int
	}{
		{"first delivery", nil, 0},
		{"3.10, by basic.get", topology.Table{"x-delivery-count": int64(0)}, 0},
		{"third", topology.Table{"x-delivery-count": int64(2)}, 2},
		{"32-bit count", topology.Table{"x-delivery-count": int32(2)}, 2},
		{"not a number", topology.Table{"x-delivery-count": "2"}, 0},
		{"negative", topology.Table{"x-delivery-count": int64(-2)}, 0},
		{"huge", topology.Table{"x-delivery-count": int64(math.MaxInt64)}, math.MaxInt32 - 1},
		// Deliveries does not subtract rejections in another queue. Before RabbitMQ 4.3, each queue restarts the count, so
		// all five deliveries were in this queue.
		{"rejected in another queue before", topology.Table{"x-delivery-count": int64(5), "x-death": died("other", 3)}, 5},
		{"forged", topology.Table{"x-delivery-count": int64(5), "x-death": forged("other")}, 5},
		{"forged rejection in this queue", topology.Table{"x-delivery-count": int64(5), "x-death": forged("q")}, 5},
		{"trail of this queue", topology.Table{"x-delivery-count": int64(2), "x-reprise-attempts": int64(4), "x-reprise-queue": "q"}, 6},
		{"trail of another queue", topology.Table{"x-delivery-count": int64(2), "x-reprise-attempts": int64(4), "x-reprise-queue": "other"}, 2},
	} {
		d := topology.Delivery{Queue: "q", Redelivered: true, Headers: tc.headers}
		h := topology.Deliveries{}.Read(d)
		if h.Attempts != tc.want || h.RetriesLeft != topology.Undecided {
			t.Errorf("%s: got %+v, want %d attempts and undecided retries", tc.name, h, tc.want)
		}
		if n := crashCount(topology.Deliveries{}, d); n != 0 {
			t.Errorf("%s: got %d crashes, want 0, because deliveries already count as attempts", tc.name, n)
		}
	}
}

// Trail does not count deliveries, so all deliveries in x-delivery-count are crashes.
func TestCrashes(t *testing.T) {
	d := topology.Delivery{Redelivered: true, Headers: topology.Table{"x-delivery-count": uint16(3), "x-death": died("q", 2)}}
	if n := crashCount(topology.Trail{}, d); n != 3 {
		t.Errorf("got %d crashes, want 3", n)
	}
	if n := crashCount(topology.CountDown{}, topology.Delivery{}); n != 0 {
		t.Errorf("got %d crashes on a first delivery, want 0", n)
	}
}

// A publisher may have copied all headers of a message in another queue. In a first delivery, no attempt has failed in this
// queue, so counts are ignored.
func TestCountsOfFirstDeliveryAreIgnored(t *testing.T) {
	d := topology.Delivery{Queue: "q", Headers: topology.Table{"x-delivery-count": int64(6)}}
	for _, m := range []topology.Marks{topology.Deaths{}, topology.Deliveries{}, topology.Trail{}} {
		if h, n := m.Read(d), crashCount(m, d); h.Attempts != 0 || n != 0 {
			t.Errorf("%T: got %d attempts and %d crashes, want 0", m, h.Attempts, n)
		}
	}
	if hop, err := (topology.DelayedRetry{Min: time.Second}).Wait(d, 0); err != nil || hop.Delay != time.Second {
		t.Errorf("first delay: got %s, %v, want 1s", hop.Delay, err)
	}
}

func TestDeathsTolerateAnyHeader(t *testing.T) {
	table := rapid.Custom(func(t *rapid.T) any {
		death := topology.Table{}
		for _, key := range []string{"count", "queue", "time", "exchange", "routing-keys", "reason"} {
			switch rapid.IntRange(0, 3).Draw(t, key) {
			case 0:
				death[key] = anything().Draw(t, key)
			case 1:
				death[key] = died("q", 3)[1].(topology.Table)[key]
			}
		}
		return death
	})
	rapid.Check(t, func(t *rapid.T) {
		var deaths any = rapid.SliceOfN(rapid.OneOf(table, anything()), 0, 5).Draw(t, "deaths")
		if rapid.Bool().Draw(t, "no array") {
			deaths = anything().Draw(t, "x-death")
		}
		d := topology.Delivery{
			Queue: "q", Redelivered: rapid.Bool().Draw(t, "redelivered"),
			Headers: topology.Table{"x-death": deaths, "x-delivery-count": anything().Draw(t, "count")},
		}
		for _, m := range []topology.Marks{topology.Deaths{}, topology.Deliveries{}} {
			h := m.Read(d)
			if h.Attempts < 0 || crashCount(m, d) < 0 || h.Queue != "" && h.Queue != "q" {
				t.Fatalf("%T: got %+v, %d crashes, want no negative counts and queue q or none", m, h, crashCount(m, d))
			}
		}
	})
}

// The Trail of a parked copy contains the number of attempts that the broker counted.
func TestParkedTrailContainsBrokerCounts(t *testing.T) {
	for _, tc := range []struct {
		marks topology.Marks
		route topology.Route
		d     topology.Delivery
	}{
		{topology.Deaths{}, topology.DeadLettering{}, topology.Delivery{Queue: "q", Headers: topology.Table{"x-death": died("q", 4)}}},
		{topology.Deliveries{}, topology.Requeuing{}, topology.Delivery{Queue: "q", Redelivered: true, Headers: topology.Table{"x-delivery-count": int64(4)}}},
		{topology.Deliveries{}, topology.DelayedRetry{}, topology.Delivery{Queue: "q", Redelivered: true, Headers: topology.Table{"x-delivery-count": int64(4)}}},
	} {
		if m := (topology.Strategy{Route: tc.route}).WithDefaults().Marks; m != tc.marks {
			t.Errorf("default marks of %T: got %T, want %T", tc.route, m, tc.marks)
		}
		if m := (topology.Strategy{Route: tc.route, Marks: topology.Trail{}}).WithDefaults().Marks; m != (topology.Trail{}) {
			t.Errorf("%T replaced the configured marks", tc.route)
		}
		h := tc.marks.Read(tc.d)
		f := topology.Failure{AttemptError: topology.AttemptError{Attempt: h.Attempts + 1, Error: "last"}, History: h, Queue: "q"}
		parked := topology.Trail{}.Read(topology.Delivery{Queue: "q", Headers: tc.marks.Park(nil, f)})
		if parked.Attempts != 5 || len(parked.Errors) != 1 || parked.Errors[0].Error != "last" {
			t.Errorf("%T: parked history: got %+v, want 5 attempts and the error \"last\"", tc.marks, parked)
		}
		if !tc.marks.Owns(topology.HeaderErrors) || tc.marks.Owns("x-death") || tc.marks.Owns("own") {
			t.Errorf("%T must own only the headers of Trail", tc.marks)
		}
	}
}
