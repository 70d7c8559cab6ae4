package flow

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/graph"
)

// Step is a node of the graph with its outgoing edges. If a node occurs several times, only its first Step has edges,
// and Again is true in the others.
type Step struct {
	graph.Node
	Again bool
	Notes []string // descriptions of the edges that lead back
	Ways  []Way
}

// Way is an edge to a step.
type Way struct {
	Kind   graph.Way
	Labels []string
	To     *Step
}

// Trees returns the graph as trees, in the order of its nodes. A root is a node without incoming edges, apart from
// edges that return messages, or the first node of a cycle that no root leads to.
func Trees(g *graph.Graph) []*Step {
	t := treeBuilder{nodes: map[string]graph.Node{}, out: map[string][]graph.Edge{}, seen: map[string]bool{}, above: map[string]bool{}}
	entered := map[string]bool{}
	for _, n := range g.Nodes {
		t.nodes[n.ID] = n
	}
	for _, e := range g.Edges {
		t.out[e.From] = append(t.out[e.From], e)
		if e.Way != graph.Returns && e.From != e.To {
			entered[e.To] = true
		}
	}
	var roots []*Step
	for _, all := range []bool{false, true} { // the second pass adds the cycles that no root leads to
		for _, n := range g.Nodes {
			if !t.seen[n.ID] && (all || !entered[n.ID]) {
				roots = append(roots, t.step(n.ID))
			}
		}
	}
	return roots
}

type treeBuilder struct {
	nodes map[string]graph.Node
	out   map[string][]graph.Edge
	seen  map[string]bool
	above map[string]bool // the nodes from the root to the current node
}

func (t *treeBuilder) step(id string) *Step {
	s := &Step{Node: t.nodes[id], Again: t.seen[id]}
	if s.Again {
		return s
	}
	t.seen[id], t.above[id] = true, true
	defer delete(t.above, id)
	for _, e := range t.out[id] {
		if isBack(e, t.above) {
			s.Notes = append(s.Notes, back(e, t.nodes[e.To].Name))
		}
	}
	order := []graph.Way{graph.Bound, graph.Retried, graph.Parked}
	ways := slices.Clone(t.out[id])
	slices.SortStableFunc(ways, func(x, y graph.Edge) int { return slices.Index(order, x.Way) - slices.Index(order, y.Way) })
	for _, e := range ways {
		if !isBack(e, t.above) {
			s.Ways = append(s.Ways, Way{e.Way, e.Labels, t.step(e.To)})
		}
	}
	return s
}

// isBack reports whether an edge leads back to a node in above, or returns messages from a wait queue to their work
// queue.
func isBack(e graph.Edge, above map[string]bool) bool { return above[e.To] || e.Way == graph.Returns }

// back describes an edge that leads back to the node called name.
func back(e graph.Edge, name string) string {
	labels := strings.Join(e.Labels, "; ")
	switch {
	case e.From == e.To:
		return labels
	case labels == "":
		return "to " + name
	}
	return "to " + name + " " + labels
}
