package design

import (
	"slices"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// The cover art indexer parks messages without the header of the work queue, so the routing key identifies the work queue.
func TestPublishedQueueDependsOnRoutingKey(t *testing.T) {
	of := PublishedOrigin()
	for key, want := range map[string]string{
		"index": "cover-art-archive.index", "delete": "cover-art-archive.delete", "move": "cover-art-archive.move", "other": "",
	} {
		m := &reprise.Delivery{Message: reprise.Message{RoutingKey: key}, Queue: "cover-art-archive.failed"}
		if got := of(m); got != want {
			t.Errorf("key %s: got queue %q, want %q", key, got, want)
		}
	}
	if got := of(&reprise.Delivery{Message: reprise.Message{RoutingKey: "index"}, Queue: "orders.failed"}); got != "" {
		t.Errorf("message of another failed queue: got queue %q", got)
	}
}

// The configuration determines the possible work queues of a failed queue. The header of a message selects one of them, but
// cannot select another queue.
func TestOriginIgnoresForgedHeader(t *testing.T) {
	work := func(queue string, strategy topology.Strategy) reprise.WorkerConfig {
		return reprise.WorkerConfig{Queue: queue, Strategy: strategy}
	}
	shared := preset.CoverArt{}.Strategy()
	of := Origin([]reprise.WorkerConfig{
		work("orders", topology.Strategy{}), work("refunds", topology.Strategy{}),
		work(preset.CoverArtIndexQueue, shared), work(preset.CoverArtMoveQueue, shared),
	})
	for _, tc := range []struct{ failed, header, key, want string }{
		{"orders.failed", "", "", "orders"},
		{"orders.failed", "orders", "", "orders"},
		{"orders.failed", "refunds", "", "orders"},
		{"other.failed", "refunds", "", ""},
		{"cover-art-archive.failed", "", "move", preset.CoverArtMoveQueue},
		{"cover-art-archive.failed", preset.CoverArtIndexQueue, "move", preset.CoverArtIndexQueue},
		{"cover-art-archive.failed", "refunds", "move", "cover-art-archive.failed"},
		{"cover-art-archive.failed", "", "other", ""},
	} {
		m := &reprise.Delivery{Message: reprise.Message{RoutingKey: tc.key, Headers: map[string]any{}}, Queue: tc.failed}
		if tc.header != "" {
			m.Headers[topology.HeaderQueue] = tc.header
		}
		if got := of(m); got != tc.want {
			t.Errorf("%+v: got queue %q, want %q", tc, got, tc.want)
		}
	}
}

// The failed queues are the same queues that the graph of the workers shows as failed queues.
func TestFailedQueuesMatchGraph(t *testing.T) {
	var all []reprise.WorkerConfig
	for _, w := range []reprise.WorkerConfig{
		{Queue: "orders"},
		{Queue: "bound", Topology: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "events", Kind: topology.Topic}},
			Bindings:  []topology.Binding{{Exchange: "events", RoutingKey: "bound.key", Queue: "bound"}},
		}},
		{Queue: preset.CoverArtIndexQueue, Strategy: preset.CoverArt{}.Strategy()},
		{Queue: preset.CoverArtMoveQueue, Strategy: preset.CoverArt{}.Strategy()},
	} {
		for _, workers := range [][]reprise.WorkerConfig{{w}, append(all, w)} {
			var drawn []graph.Worker
			for _, w := range workers {
				drawn = append(drawn, graph.Of(w))
			}
			var want []string
			for _, n := range graph.New(drawn).Nodes {
				if n.Kind == graph.Failed {
					want = append(want, n.Name)
				}
			}
			if got := FailedQueues(workers); len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("failed queues of %d workers, last %s: got %q, want %q", len(workers), w.Queue, got, want)
			}
		}
		all = append(all, w)
	}
}

// A message that failed in a lane returns to the lane that its header names, but only if the worker has this lane.
func TestOriginOfLanes(t *testing.T) {
	of := Origin([]reprise.WorkerConfig{{Queue: "orders", Strategy: topology.Strategy{Route: topology.Lanes{Count: 4}}}})
	for named, want := range map[string]string{
		"orders.lane.3-of-4": "orders.lane.3-of-4", "orders.lane.4-of-4": "", "other.lane.3-of-4": "", "orders": "", "": "",
	} {
		m := &reprise.Delivery{Queue: "orders.failed"}
		if m.Headers = map[string]any{}; named != "" {
			m.Headers[topology.HeaderQueue] = named
		}
		if got := of(m); got != want {
			t.Errorf("header %q: got %q, want %q", named, got, want)
		}
	}
}
