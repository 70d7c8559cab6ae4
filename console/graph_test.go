package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// ways are a graph's edges in words.
func ways(g *graph.Graph) []string {
	var all []string
	name := func(id string) string { _, name, _ := strings.Cut(id, "/"); return name }
	for _, e := range g.Edges {
		all = append(all, fmt.Sprintf("%s -%s-> %s: %s", name(e.From), e.Way, name(e.To), strings.Join(e.Labels, ", ")))
	}
	slices.Sort(all)
	return all
}

func TestGraph(t *testing.T) {
	for name, test := range map[string]struct {
		topology topology.Topology
		want     []string
	}{
		"of its own": {
			topology.Topology{
				Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
				Queues: []topology.Queue{
					{Name: "orders.wait.2441-3051", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}},
					{Name: "orders.wait.1000-1250", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}},
					{Name: "orders"},
					{Name: "orders.failed"},
				},
				Bindings: []topology.Binding{{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"}, {Exchange: "shop", Queue: "orders", RoutingKey: "refund.*"}},
			},
			[]string{
				"orders -parked-> orders.failed: given up",
				"orders -retried-> orders.wait.*: fails",
				"orders.wait.* -returns-> orders: after 1 s to 3 s",
				"shop -bound-> orders: order.*, refund.*",
			},
		},
		"levels": {
			topology.Levels{}.Topology("orders").Merge(levels(t, "orders")),
			[]string{
				"orders -parked-> orders.failed: given up",
				"orders -retried-> orders.level.*: fails",
				"orders.level.* -returns-> orders: when the time is up",
			},
		},
		"cover art": {
			preset.CoverArt{}.Topology(),
			[]string{
				"cover-art-archive -bound-> cover-art-archive.delete: delete",
				"cover-art-archive -bound-> cover-art-archive.index: index",
				"cover-art-archive -bound-> cover-art-archive.move: move",
				"cover-art-archive.delete -parked-> cover-art-archive.failed: given up",
				"cover-art-archive.delete -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.failed -bound-> cover-art-archive.failed: ",
				"cover-art-archive.index -parked-> cover-art-archive.failed: given up",
				"cover-art-archive.index -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.move -parked-> cover-art-archive.failed: given up",
				"cover-art-archive.move -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.retry -bound-> cover-art-archive.retry: ",
				"cover-art-archive.retry -returns-> cover-art-archive: after 4 h",
			},
		},
		"work and retry": {
			topology.Topology{
				Exchanges: []topology.Exchange{{Name: "WorkExchange", Kind: topology.Direct}, {Name: "RetryExchange", Kind: topology.Direct}},
				Queues: []topology.Queue{
					{Name: "WorkQueue", Args: topology.Table{"x-dead-letter-exchange": "RetryExchange"}},
					{Name: "RetryQueue", Args: topology.Table{"x-dead-letter-exchange": "WorkExchange", "x-message-ttl": int64(300000)}},
				},
				Bindings: []topology.Binding{{Exchange: "WorkExchange", Queue: "WorkQueue"}, {Exchange: "RetryExchange", Queue: "RetryQueue"}},
			},
			[]string{
				"RetryExchange -bound-> RetryQueue: ",
				"RetryQueue -returns-> WorkExchange: after 5 min",
				"WorkExchange -bound-> WorkQueue: ",
				"WorkQueue -retried-> RetryExchange: rejected",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGraph(test.topology, nil, nil)
			if d := cmp.Diff(test.want, ways(g)); d != "" {
				t.Error(d)
			}
		})
	}
}

// levels are the queues and exchanges of a wait of five seconds.
func levels(t *testing.T, queue string) topology.Topology {
	t.Helper()
	hop, err := topology.Levels{}.Wait(topology.Delivery{Queue: queue}, 5e9)
	if err != nil {
		t.Fatal(err)
	}
	return hop.Topology
}
