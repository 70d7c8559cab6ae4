package failed

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// LookBeforeRedrive returns the destinations of the messages, and marks the destinations that depend on a header that a
// publisher can forge. It does not remove messages. Redrive stops at the first message with an untrusted destination.
func TestLookBeforeRedrive(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newWire(t, b.URL)
		work, refunds := w.queue("work", nil), w.queue("refunds", nil)
		from := w.queue("parked", nil)
		w.publish(from, map[string]any{topology.HeaderQueue: work}, "a", "b")
		w.publish(from, map[string]any{topology.HeaderQueue: refunds}, "c")
		w.publish(from, nil, "d")
		testkit.Eventually(t, longest, func() bool { return w.depth(from) == 4 })
		type preview struct {
			found        int
			destinations []Destination
		}
		look := func(c RedriveConfig) preview {
			t.Helper()
			c.From = from
			var p preview
			var err error
			p.found, p.destinations, err = LookBeforeRedrive(t.Context(), w.client, c)
			must(t, err)
			testkit.Eventually(t, longest, func() bool { return w.depth(from) == 4 })
			for i := range p.destinations { // the original target is not known
				d := &p.destinations[i]
				if byName := c.To == nil && !d.Unknown; byName != (d.Warning != "") {
					t.Errorf("destination %q: got warning %q, want a warning: %t", d.RoutingKey, d.Warning, byName)
				}
				if want := map[bool]string{true: RouteAssumed}[c.To == nil && !d.Unknown]; c.To == nil && d.Route != want || c.To != nil && d.Route != RouteGiven {
					t.Errorf("destination %q: got route %q", d.RoutingKey, d.Route)
				}
				d.Warning, d.Route = "", ""
			}
			return p
		}
		goes := func(to string, n int64) Destination {
			return Destination{Target: Target{RoutingKey: to}, Queue: to, FailedQueue: from, Messages: n}
		}
		anywhere := func(to string, n int64) Destination {
			return Destination{Target: Target{RoutingKey: to}, FailedQueue: from, Messages: n}
		}
		claimed := func(d Destination) Destination { d.Claimed = true; return d }
		unknown := func(d Destination) Destination { d.Unknown = true; return d }
		knows := func(m *reprise.Delivery) string { // as an IngestConfig.Origin
			if m.Headers[topology.HeaderQueue] == work {
				return work
			}
			return ""
		}
		for name, tc := range map[string]struct {
			config RedriveConfig
			want   preview
		}{
			"headers only": {RedriveConfig{}, preview{4, []Destination{claimed(goes(work, 2)), unknown(goes("", 1)), claimed(goes(refunds, 1))}}},
			"origin":       {RedriveConfig{Origin: knows}, preview{4, []Destination{goes(work, 2), unknown(goes("", 1)), claimed(goes(refunds, 1))}}},
			"limit":        {RedriveConfig{Limit: 1}, preview{1, []Destination{claimed(goes(work, 1))}}},
			"one target":   {RedriveConfig{To: &Target{RoutingKey: work}}, preview{4, []Destination{anywhere(work, 4)}}},
		} {
			if diff := cmp.Diff(tc.want, look(tc.config), cmp.AllowUnexported(preview{})); diff != "" {
				t.Errorf("%s: preview differs: %s", name, diff)
			}
		}

		done, err := redriveFrom(t.Context(), w.client, RedriveConfig{From: from, Believe: func(queue string) bool { return queue == work }})
		if e, ok := errors.AsType[*ClaimError](err); !ok || e.Queue != refunds || done.Sent != 2 {
			t.Errorf("got %+v, %v, want a ClaimError for %s", done, err, refunds)
		}
		testkit.Eventually(t, longest, func() bool { return w.depth(from) == 2 && w.depth(work) == 2 && w.depth(refunds) == 0 })
	})
}

// A work queue does not count as claimed if x-death or the name of the failed queue confirms it.
func TestPlaceOfMarksClaims(t *testing.T) {
	death := func(queue, reason string) []any {
		return []any{topology.Table{"queue": queue, "reason": reason, "count": int64(1)}}
	}
	for name, tc := range map[string]struct {
		headers topology.Table
		want    place
	}{
		"header":                             {topology.Table{topology.HeaderQueue: "refunds"}, place{"refunds", true}},
		"header that matches the queue name": {topology.Table{topology.HeaderQueue: "orders"}, place{"orders", false}},
		"x-first-death-queue":                {topology.Table{"x-first-death-queue": "refunds"}, place{"refunds", true}},
		"x-death":                            {topology.Table{"x-death": death("refunds", "rejected")}, place{"refunds", false}},
		"x-death and another header":         {topology.Table{"x-death": death("orders", "rejected"), topology.HeaderQueue: "refunds"}, place{"orders", false}},
		"header, expired in the same queue":  {topology.Table{"x-death": death("refunds", "expired"), topology.HeaderQueue: "refunds"}, place{"refunds", false}},
		"header, expired in a wait queue":    {topology.Table{"x-death": death("orders.wait", "expired"), topology.HeaderQueue: "refunds"}, place{"refunds", true}},
		"no headers":                         {nil, place{}},
	} {
		m := &reprise.Delivery{Message: reprise.Message{Headers: tc.headers}, Queue: "orders.failed"}
		if got := placeOf(m, historyOf(m.Headers), deaths(m.Headers), nil); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// If previews count towards the delivery limit of a queue, LookBeforeRedrive returns an error before the broker drops
// the message.
func TestLookBeforeRedriveStopsBeforeDeliveryLimit(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newWire(t, b.URL)
		from := w.queue("parked", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)})
		w.publish(from, map[string]any{topology.HeaderQueue: "work"}, "a")
		testkit.Eventually(t, longest, func() bool { return w.depth(from) == 1 })
		looks := 0
		for looks < 30 {
			found, destinations, err := LookBeforeRedrive(t.Context(), w.client, RedriveConfig{From: from})
			if found != 1 {
				t.Fatalf("preview %d: found %d messages, want 1", looks, found)
			}
			if errors.Is(err, reprise.ErrPeekLimit) {
				break
			}
			if must(t, err); len(destinations) != 1 {
				t.Fatalf("preview %d: got %v, want one destination", looks, destinations)
			}
			looks++
		}
		want := 30
		if b.Version == "3.10" {
			want = reprise.MaxPeeks
		}
		if looks != want {
			t.Errorf("got %d previews, want %d", looks, want)
		}
	})
}
