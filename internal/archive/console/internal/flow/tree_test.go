package flow

import (
	"testing"

	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// For each node, exactly one step has its edges, and each edge occurs exactly once.
func TestTreesContainEachEdgeOnce(t *testing.T) {
	cycle := &graph.Graph{
		Nodes: []graph.Node{{ID: "queue/a", Name: "a"}, {ID: "queue/b", Name: "b"}},
		Edges: []graph.Edge{{From: "queue/a", To: "queue/b", Way: graph.Retried}, {From: "queue/b", To: "queue/a", Way: graph.Retried}, {From: "queue/b", To: "queue/b", Way: graph.Retried, Labels: []string{"fails"}}},
	}
	for name, g := range map[string]*graph.Graph{
		"none":       {},
		"cycle":      cycle,
		"wait":       NewGraph(topology.Buckets{}.Topology("orders"), nil, nil, nil),
		"cover art":  NewGraph(preset.CoverArt{}.Topology(), nil, nil, nil),
		"staking":    NewGraph(preset.Staking{}.Topology(), nil, nil, nil),
		"work-retry": NewGraph(preset.WorkRetry{}.Topology(), nil, nil, nil),
		"cdn purge":  NewGraph(preset.CDNPurge{}.Topology(), nil, nil, nil),
	} {
		t.Run(name, func(t *testing.T) {
			nodes, edges := map[string]int{}, 0
			var visit func(*Step)
			visit = func(s *Step) {
				if s.Again {
					if len(s.Ways)+len(s.Notes) > 0 {
						t.Errorf("repeated step %s has edges", s.ID)
					}
					return
				}
				nodes[s.ID]++
				edges += len(s.Ways) + len(s.Notes)
				for _, w := range s.Ways {
					visit(w.To)
				}
			}
			for _, root := range Trees(g) {
				if root.Again {
					t.Errorf("root %s is a repeated step", root.ID)
				}
				visit(root)
			}
			for _, n := range g.Nodes {
				if nodes[n.ID] != 1 {
					t.Errorf("node %s: got %d steps with edges, want 1", n.ID, nodes[n.ID])
				}
			}
			if edges != len(g.Edges) {
				t.Errorf("got %d edges, want %d", edges, len(g.Edges))
			}
		})
	}
	steps := Trees(cycle)
	if len(steps) != 1 || len(steps[0].Ways) != 1 || len(steps[0].Ways[0].To.Notes) != 2 {
		t.Errorf("tree of a cycle: got %+v, want len 1", steps)
	}
}
