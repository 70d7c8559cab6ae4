package flow

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// If the configuration of a worker is known, the graph has the same edges for failed messages as "reprise topology
// graph", regardless of the names of the queues.
func TestGraphOfKnownWorkers(t *testing.T) {
	short := reprise.Policy{MaxAttempts: 4, Backoff: backoff.Exponential{Initial: 500 * time.Millisecond, Max: 2 * time.Second}}
	for name, test := range map[string]struct {
		config reprise.WorkerConfig
		found  topology.Topology // the topology on the broker
		want   []string
	}{
		"wait queues": {
			reprise.WorkerConfig{Queue: "orders", Policy: short},
			topology.Topology{Queues: []topology.Queue{
				{Name: "orders.wait.0-1000", Args: topology.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}},
				{Name: "orders"},
				{Name: "orders.failed"},
			}},
			[]string{
				"orders -parked-> orders.failed: parked after 4 attempts, or 20 deliveries without an answer",
				"orders -retried-> orders.wait.*: fails, up to 3 retries",
				"orders.wait.* -returns-> orders: after 500ms to 2s",
			},
		},
		"undeclared wait queues": {
			config: reprise.WorkerConfig{Queue: "orders", Policy: short},
			found:  topology.Buckets{}.Topology("orders"),
		},
		"another failed queue": {
			config: reprise.WorkerConfig{Queue: "orders", Policy: short, Strategy: topology.Strategy{Route: topology.ParkIn{Queue: "shop.dead"}}},
			found:  topology.ParkIn{Queue: "shop.dead"}.Topology("orders"),
		},
		"requeuing":  {config: reprise.WorkerConfig{Queue: "orders", Policy: short, Strategy: topology.Strategy{Route: topology.Requeuing{}}}},
		"cover art":  {config: reprise.WorkerConfig{Queue: preset.CoverArtIndexQueue, Policy: short, Strategy: preset.CoverArt{}.Strategy()}, found: preset.CoverArt{}.Topology()},
		"staking":    {config: reprise.WorkerConfig{Queue: preset.StakingActiveQueue, Policy: short, Strategy: preset.Staking{}.Strategy()}, found: preset.Staking{}.Topology()},
		"work-retry": {config: reprise.WorkerConfig{Queue: preset.WorkRetryWorkQueue, Policy: short, Strategy: preset.WorkRetry{}.Strategy()}, found: preset.WorkRetry{}.Topology()},
		"cdn purge":  {config: reprise.WorkerConfig{Queue: preset.CDNPurgeQueue, Policy: short, Strategy: preset.CDNPurge{}.Strategy()}, found: preset.CDNPurge{}.Topology()},
	} {
		t.Run(name, func(t *testing.T) {
			known := Policies([]Worker{{Queue: test.config.Queue, Config: &test.config}})
			got := ways(NewGraph(test.found, []string{test.config.Queue}, known, nil))
			reported := ways(graph.New(known))
			for _, w := range reported {
				if !slices.Contains(got, w) {
					t.Errorf("edge %s not found in %q", w, got)
				}
			}
			if test.want == nil {
				return
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
