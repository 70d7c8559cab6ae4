package store_test

import (
	"context"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// Destinations shows the target of each message before a replay, including messages with a forged work queue.
func TestDestinations(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		of := func(queue, failedQueue, exchange, key string) failed.Arrived {
			return failed.Arrived{Message: failed.Message{Queue: queue, FailedQueue: failedQueue, Exchange: exchange, RoutingKey: key, Error: "down"}}
		}
		value(a.Ingest(t.Context(), []failed.Arrived{
			of("orders", "orders.failed", "", "orders"), of("refunds", "orders.failed", "", "refunds"), of("orders", "orders.failed", "", "orders"),
			of("", "dead", "", ""), of("mails", "mails.failed", "", "mails"),
			of("prints", "prints.failed", "shop", "print.a4"), of("prints", "prints.failed", "shop", "print.a5"), of("prints", "prints.failed", "shop", "print.a5"),
			of("prints", "prints.failed", "shop", "all.a4"),
		}))(t)
		value(a.Discard(t.Context(), failed.Filter{Queue: "mails"}, "old", "me"))(t)
		back := func(queue, failedQueue string, n int64) replay.Destination {
			return replay.Destination{Target: failed.Target{RoutingKey: queue}, Queue: queue, Route: replay.RouteOriginal, FailedQueue: failedQueue, Messages: n}
		}
		to := func(d replay.Destination) replay.Destination { d.Queue, d.Route = "", replay.RouteGiven; return d }
		unknown := replay.Destination{FailedQueue: "dead", Messages: 1, Unknown: true}
		prints := back("prints", "prints.failed", 3)
		prints.Exchange, prints.RoutingKey, prints.Keys = "shop", "", true
		byName := back("prints", "prints.failed", 1)
		byName.Route, byName.Refused = replay.RouteByName, true
		byName.Warning = `consumers see the routing key “prints”, not the original key; a consumer that republishes with this key ` +
			`may lose the message (exchange “shop” also routes the original key to “audit”)`
		asked := 0
		bound := replay.Routing{Bindings: func(context.Context) (topology.Topology, error) {
			asked++
			return topology.Topology{
				Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
				Bindings: []topology.Binding{
					{Exchange: "shop", Queue: "prints", RoutingKey: "*.*"}, {Exchange: "shop", Queue: "audit", RoutingKey: "all.*"},
				},
			}, nil
		}}
		elsewhere := failed.Plan{To: &failed.Target{RoutingKey: "elsewhere"}}
		for name, tc := range map[string]struct {
			plan failed.Plan
			want []replay.Destination
		}{
			"all": {failed.Plan{}, []replay.Destination{
				prints, back("orders", "orders.failed", 2), unknown, byName, back("refunds", "orders.failed", 1),
			}},
			"one queue": {failed.Plan{Filter: failed.Filter{Queue: "orders", Text: "down"}}, []replay.Destination{back("orders", "orders.failed", 2)}},
			"no queue":  {failed.Plan{Filter: failed.Filter{Queue: "none"}}, nil},
			"elsewhere": {elsewhere, []replay.Destination{to(back("elsewhere", "prints.failed", 4)), to(back("elsewhere", "orders.failed", 3)), to(back("elsewhere", "dead", 1))}},
		} {
			asked = 0
			if d := gocmp.Diff(tc.want, value(replay.Destinations(t.Context(), a, tc.plan, bound))(t)); d != "" {
				t.Errorf("%s: destinations differ: %s", name, d)
			}
			if tc.want == nil && asked > 0 {
				t.Errorf("%s: asked for the bindings %d times, although no message is selected", name, asked)
			}
			var selected store.Total
			for _, d := range tc.want {
				selected.N += d.Messages
			}
			previewed, total, err := replay.Preview(t.Context(), a, tc.plan, bound)
			if d := gocmp.Diff(tc.want, previewed); d != "" || total != selected || err != nil {
				t.Errorf("%s: preview: got total %+v, error %v; destinations differ: %s", name, total, err, d)
			}
		}
	})
}
