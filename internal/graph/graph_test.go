package graph_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

var update = flag.Bool("update", false, "update the files in testdata")

// workers returns a worker for each path of a failed message.
func workers() map[string][]graph.Worker {
	shop := topology.Topology{
		Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
		Bindings: []topology.Binding{
			{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"},
			{Exchange: "shop", Queue: "orders", RoutingKey: "invoice.#"},
		},
	}
	one := func(r topology.Route) []graph.Worker {
		return []graph.Worker{{Queue: "orders", Strategy: topology.Strategy{Route: r}, Attempts: 5, Backoff: backoff.Fixed(4 * time.Hour)}}
	}
	growing := []graph.Worker{{
		Queue: "orders", Topology: shop, Attempts: 10, Backoff: backoff.Exponential{Initial: time.Second, Factor: 3, Max: 6 * time.Hour},
	}}
	coverArt := preset.CoverArt{}
	covers := []graph.Worker{
		{Queue: preset.CoverArtIndexQueue, Strategy: coverArt.Strategy(), Attempts: 10, Backoff: backoff.Fixed(time.Second)},
		{Queue: preset.CoverArtMoveQueue, Strategy: coverArt.Strategy(), Attempts: 10, Backoff: backoff.Fixed(time.Second)},
	}
	return map[string][]graph.Worker{
		"buckets":     growing,
		"levels":      one(topology.Levels{}),
		"message-ttl": one(topology.MessageTTL{}),
		"requeue":     one(topology.Requeuing{}),
		"dead-letter": one(topology.DeadLettering{Delay: 5 * time.Minute}),
		"delayed":     one(topology.DelayedRetry{Min: time.Second, Max: time.Minute}),
		"cover-art":   covers,
		"staking": {{
			Queue: preset.StakingActiveQueue, Strategy: preset.Staking{}.Strategy(), Attempts: 3, Backoff: backoff.Fixed(time.Second),
		}},
		"work-retry": {{
			Queue: preset.WorkRetryWorkQueue, Strategy: preset.WorkRetry{}.Strategy(), Attempts: 3, Backoff: backoff.Fixed(time.Second),
		}},
		"cdn-purge": {{
			Queue: preset.CDNPurgeQueue, Strategy: preset.CDNPurge{}.Strategy(), Attempts: 3, Backoff: backoff.Fixed(time.Second),
		}},
		"several":      append(append([]graph.Worker{}, growing...), covers...),
		"without-any":  nil,
		"one-attempt":  {{Queue: "orders", Attempts: 1, Backoff: backoff.Fixed(time.Second)}},
		"hostile-name": {{Queue: `<b>"#;\` + "\n", Attempts: 2, Backoff: backoff.Fixed(time.Second)}},
	}
}

func TestWriteMermaid(t *testing.T) {
	for name, w := range workers() {
		var b bytes.Buffer
		if err := graph.New(w).WriteMermaid(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", name+".mermaid"), b.Bytes())
	}
}

func TestWriteDOT(t *testing.T) {
	for _, name := range []string{"buckets", "cover-art", "hostile-name"} {
		var b bytes.Buffer
		if err := graph.New(workers()[name]).WriteDOT(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, filepath.Join("testdata", name+".dot"), b.Bytes())
	}
}

// Only the queues in which workers park have the kind Failed, because an archive empties them.
func TestGraphFailedQueues(t *testing.T) {
	want := map[string][]string{
		"cover-art":    {"cover-art-archive.failed"},
		"staking":      {"active_staking_queue_failed"},
		"work-retry":   {"WorkQueue.failed"},
		"cdn-purge":    {"cdn-purge.failed"},
		"several":      {"orders.failed", "cover-art-archive.failed"},
		"hostile-name": {"<b>\"#;\\\n.failed"},
		"without-any":  nil,
	}
	for name, w := range workers() {
		queues, found := want[name]
		if !found {
			queues = []string{"orders.failed"}
		}
		var got []string
		for _, n := range graph.New(w).Nodes {
			if n.Kind == graph.Failed {
				got = append(got, n.Name)
			}
		}
		if diff := cmp.Diff(queues, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestGraphCount(t *testing.T) {
	g := graph.New(workers()["buckets"])
	g.Count(map[string]graph.Count{
		"orders":                {Ready: 3, Unacked: 1},
		"orders.wait.0-1000":    {Ready: 5},
		"orders.wait.1000-1250": {Ready: 7},
		"orders.waiter":         {Ready: 100}, // of another program
	})
	got := map[string]graph.Count{}
	for _, n := range g.Nodes {
		if n.Count != nil {
			got[n.Name] = *n.Count
		}
	}
	want := map[string]graph.Count{"orders": {Ready: 3, Unacked: 1}, "orders.wait.*": {Ready: 12}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: %s", path, diff)
	}
}
