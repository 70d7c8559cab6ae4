package replay

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// LookBeforeRedrive returns the destinations of the messages, and marks the destinations that depend on a header that a
// Publisher can forge. It does not remove messages. Redrive stops at the first message with an untrusted destination.
func TestLookBeforeRedrive(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work, refunds := w.Queue("work", nil), w.Queue("refunds", nil)
		from := w.Queue("parked", nil)
		w.Publish(from, map[string]any{topology.HeaderQueue: work}, "a", "b")
		w.Publish(from, map[string]any{topology.HeaderQueue: refunds}, "c")
		w.Publish(from, nil, "d")
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 4 })
		type preview struct {
			found        int
			destinations []Destination
		}
		look := func(c RedriveConfig) preview {
			t.Helper()
			c.From = from
			var p preview
			var err error
			p.found, p.destinations, err = LookBeforeRedrive(t.Context(), w.Client, c)
			archivetest.Must(t, err)
			testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 4 })
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
			return Destination{Target: failed.Target{RoutingKey: to}, Queue: to, FailedQueue: from, Messages: n}
		}
		anywhere := func(to string, n int64) Destination {
			return Destination{Target: failed.Target{RoutingKey: to}, FailedQueue: from, Messages: n}
		}
		claimed := func(d Destination) Destination { d.Claimed = true; return d }
		unknown := func(d Destination) Destination { d.Unknown = true; return d }
		knows := func(m *reprise.Delivery) string { // as an ingest.Config.Origin
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
			"one target":   {RedriveConfig{To: &failed.Target{RoutingKey: work}}, preview{4, []Destination{anywhere(work, 4)}}},
		} {
			if diff := cmp.Diff(tc.want, look(tc.config), cmp.AllowUnexported(preview{})); diff != "" {
				t.Errorf("%s: preview differs: %s", name, diff)
			}
		}

		done, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from, Believe: func(queue string) bool { return queue == work }})
		if e, ok := errors.AsType[*ClaimError](err); !ok || e.Queue != refunds || done.Sent != 2 {
			t.Errorf("got %+v, %v, want a ClaimError for %s", done, err, refunds)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 2 && w.Depth(work) == 2 && w.Depth(refunds) == 0 })
	})
}

// A work queue does not count as claimed if the name of the failed queue confirms it. Every publisher can write x-death.
func TestPlaceOfMarksClaims(t *testing.T) {
	death := func(queue, reason string) []any {
		return []any{topology.Table{"queue": queue, "reason": reason, "count": int64(1)}}
	}
	for name, tc := range map[string]struct {
		headers topology.Table
		want    failed.Place
	}{
		"header":                             {topology.Table{topology.HeaderQueue: "refunds"}, failed.Place{Queue: "refunds", Claimed: true}},
		"header that matches the queue name": {topology.Table{topology.HeaderQueue: "orders"}, failed.Place{Queue: "orders", Claimed: false}},
		"x-first-death-queue":                {topology.Table{"x-first-death-queue": "refunds"}, failed.Place{Queue: "refunds", Claimed: true}},
		"x-death":                            {topology.Table{"x-death": death("refunds", "rejected")}, failed.Place{Queue: "refunds", Claimed: true}},
		"x-death and another header":         {topology.Table{"x-death": death("orders", "rejected"), topology.HeaderQueue: "refunds"}, failed.Place{Queue: "orders", Claimed: false}},
		"header, expired in the same queue":  {topology.Table{"x-death": death("refunds", "expired"), topology.HeaderQueue: "refunds"}, failed.Place{Queue: "refunds", Claimed: true}},
		"header, expired in a wait queue":    {topology.Table{"x-death": death("orders.wait", "expired"), topology.HeaderQueue: "refunds"}, failed.Place{Queue: "refunds", Claimed: true}},
		"no headers":                         {nil, failed.Place{}},
	} {
		m := &reprise.Delivery{Message: reprise.Message{Headers: tc.headers}, Queue: "orders.failed"}
		if got := failed.PlaceOf(m, failed.HistoryOf(m.Headers), failed.Deaths(m.Headers), nil); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
}

// If previews count towards the delivery limit of a queue, LookBeforeRedrive returns an error before the broker drops
// the message.
func TestLookBeforeRedriveStopsBeforeDeliveryLimit(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from := w.Queue("parked", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(20)})
		w.Publish(from, map[string]any{topology.HeaderQueue: "work"}, "a")
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 1 })
		looks := 0
		for looks < 30 {
			found, destinations, err := LookBeforeRedrive(t.Context(), w.Client, RedriveConfig{From: from})
			if found != 1 {
				t.Fatalf("preview %d: found %d messages, want 1", looks, found)
			}
			if errors.Is(err, reprise.ErrPeekLimit) {
				break
			}
			if archivetest.Must(t, err); len(destinations) != 1 {
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
