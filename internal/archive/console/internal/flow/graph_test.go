package flow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// ways returns the edges of a graph as strings.
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
				"orders -parked-> orders.failed: parked",
				"orders -retried-> orders.wait.*: fails",
				"orders.wait.* -returns-> orders: after 1s to 3.1s",
				"shop -bound-> orders: order.*, refund.*",
			},
		},
		"ordered by key": {
			topology.Topology{Queues: []topology.Queue{
				{Name: "orders.part.0-of-2"},
				{Name: "orders.part.0-of-2.held"},
				{Name: "orders.part.1-of-2"},
				{Name: "orders.part.1-of-2.held"},
				{Name: "orders.part.members"},
				{Name: "orders.failed"},
			}},
			[]string{
				"orders -parked-> orders.failed: parked",
				"orders -retried-> orders.part.*.held: fails",
				"orders.part.*.held -returns-> orders: in order",
			},
		},
		"short delays": {
			topology.Topology{Queues: []topology.Queue{
				{Name: "orders.wait.0-1000", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}},
				{Name: "orders"},
			}},
			[]string{
				"orders -retried-> orders.wait.*: fails",
				"orders.wait.* -returns-> orders: after up to 1s",
			},
		},
		"levels": {
			topology.Levels{}.Topology("orders").Merge(levels(t, "orders")),
			[]string{
				"orders -parked-> orders.failed: parked",
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
				"cover-art-archive.delete -parked-> cover-art-archive.failed: parked",
				"cover-art-archive.delete -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.failed -bound-> cover-art-archive.failed: ",
				"cover-art-archive.index -parked-> cover-art-archive.failed: parked",
				"cover-art-archive.index -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.move -parked-> cover-art-archive.failed: parked",
				"cover-art-archive.move -retried-> cover-art-archive.retry: fails",
				"cover-art-archive.retry -bound-> cover-art-archive.retry: ",
				"cover-art-archive.retry -returns-> cover-art-archive: after 4h",
			},
		},
		"staking": {
			preset.Staking{Queues: []string{"btc_info_queue"}}.Topology(),
			[]string{
				"btc_info_queue -parked-> btc_info_queue_failed: parked",
				"btc_info_queue -retried-> common_dlx: rejected",
				"btc_info_queue_delay -returns-> btc_info_queue: when the time is up",
				"common_dlx -bound-> btc_info_queue_delay: btc_info_queue_routing_key",
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
				"RetryQueue -returns-> WorkExchange: after 5m",
				"WorkExchange -bound-> WorkQueue: ",
				"WorkQueue -retried-> RetryExchange: rejected",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGraph(test.topology, nil, nil, nil)
			if d := cmp.Diff(test.want, ways(g)); d != "" {
				t.Error(d)
			}
		})
	}
}

// For each preset, NewGraph derives the kinds of the queues from their arguments and names.
func TestGraphKinds(t *testing.T) {
	failing := topology.Topology{Queues: []topology.Queue{
		{Name: "payments_failed"}, // without a work queue named payments
		{Name: "retry-payments", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry-payments.failed"}},
	}}
	for name, test := range map[string]struct {
		topology topology.Topology
		want     map[graph.Kind][]string // without exchanges
	}{
		"of its own": {topology.Buckets{}.Topology("orders"), map[graph.Kind][]string{graph.Work: {"orders"}, graph.Failed: {"orders.failed"}}},
		"cover art": {preset.CoverArt{}.Topology(), map[graph.Kind][]string{
			graph.Work: {"cover-art-archive.delete", "cover-art-archive.index", "cover-art-archive.move"},
			graph.Wait: {"cover-art-archive.retry"}, graph.Failed: {"cover-art-archive.failed"},
		}},
		"staking": {preset.Staking{Queues: []string{"btc_info_queue"}}.Topology(), map[graph.Kind][]string{
			graph.Work: {"btc_info_queue"}, graph.Wait: {"btc_info_queue_delay"}, graph.Failed: {"btc_info_queue_failed"},
		}},
		"work and retry": {preset.WorkRetry{}.Topology(), map[graph.Kind][]string{
			graph.Work: {"WorkQueue"}, graph.Wait: {"RetryQueue"}, graph.Failed: {"WorkQueue.failed"},
		}},
		"wait exchange": {preset.CDNPurge{}.Topology(), map[graph.Kind][]string{
			graph.Work: {"cdn-purge"}, graph.Wait: {"cdn-purge.wait"}, graph.Failed: {"cdn-purge.failed"},
		}},
		"names like those": {failing, map[graph.Kind][]string{graph.Work: {"payments_failed", "retry-payments"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[graph.Kind][]string{}
			for _, n := range NewGraph(test.topology, nil, nil, nil).Nodes {
				if n.Kind != graph.Exchange {
					got[n.Kind] = append(got[n.Kind], n.Name)
				}
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A queue with any name is a failed queue if a known work queue dead-letters its messages to the queue, and they do not
// return from it. Without the workers' configuration, for example in a console of its own, only this shows its kind.
func TestGraphHasFailedQueueOfAnyName(t *testing.T) {
	shared := topology.ParkIn{Queue: "shop.dead"}
	found := shared.Topology("orders").Merge(shared.Topology("invoices"))
	found.Queues = append(
		found.Queues,
		topology.Queue{Name: "orders.later", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "plain"}},
		topology.Queue{Name: "plain"},
		topology.Queue{Name: "imports", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "imports.again"}},
		topology.Queue{Name: "imports.again", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "imports", "x-message-ttl": int64(5000)}},
	)
	g := NewGraph(found, []string{"orders", "invoices", "imports"}, nil, nil)
	got := map[graph.Kind][]string{}
	for _, n := range g.Nodes {
		got[n.Kind] = append(got[n.Kind], n.Name)
	}
	if d := cmp.Diff(map[graph.Kind][]string{
		graph.Work: {"imports", "invoices", "orders", "orders.later", "plain"}, graph.Failed: {"shop.dead"}, graph.Wait: {"imports.again"},
	}, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{
		"imports -retried-> imports.again: rejected",
		"imports.again -returns-> imports: after 5s",
		"invoices -parked-> shop.dead: parked",
		"orders -parked-> shop.dead: parked",
		"orders.later -retried-> plain: rejected",
	}, ways(g)); d != "" {
		t.Error(d)
	}
}

// levels returns the queues and exchanges of topology.Levels for a delay of five seconds.
func levels(t *testing.T, queue string) topology.Topology {
	t.Helper()
	hop, err := topology.Levels{}.Wait(topology.Delivery{Queue: queue}, 5e9)
	if err != nil {
		t.Fatal(err)
	}
	return hop.Topology
}
