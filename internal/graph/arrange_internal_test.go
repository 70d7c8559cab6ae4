package graph

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// anyGraph has circles, edges to their own node, and parts that are not connected.
func anyGraph() *rapid.Generator[*Graph] {
	return rapid.Custom(func(t *rapid.T) *Graph {
		g := &Graph{}
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		for i := range n {
			g.Nodes = append(g.Nodes, Node{
				ID:   fmt.Sprintf("queue/%d", i),
				Name: rapid.StringMatching(`[a-z.]{1,30}`).Draw(t, "name"),
				Kind: rapid.SampledFrom([]Kind{Exchange, Work, Wait, Failed, Other}).Draw(t, "kind"),
			})
		}
		for range rapid.IntRange(0, 20).Draw(t, "edges") {
			from, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
			g.edge(g.Nodes[from].ID, g.Nodes[to].ID, rapid.SampledFrom([]Way{Bound, Retried, Returns, Parked}).Draw(t, "way"),
				rapid.StringMatching(`[a-z ]{0,20}`).Draw(t, "label"))
		}
		return g
	})
}

// No node covers another, all are inside of the drawing, and edges end at the sides
// of their nodes.
func TestArrange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := arrange(anyGraph().Draw(t, "graph"))
		for i, a := range d.boxes {
			if a.x < 0 || a.y < 0 || a.x+a.w > d.width || a.y+a.h > d.height {
				t.Fatalf("%s is outside of the drawing", a.ID)
			}
			for _, b := range d.boxes[i+1:] {
				if a.x < b.x+b.w && b.x < a.x+a.w && a.y < b.y+b.h && b.y < a.y+a.h {
					t.Fatalf("%s covers %s", a.ID, b.ID)
				}
			}
		}
		for _, l := range d.lines {
			if l.from == l.to {
				continue
			}
			if l.y1 < l.from.y || l.y1 > l.from.y+l.from.h || l.y2 < l.to.y || l.y2 > l.to.y+l.to.h {
				t.Fatalf("the edge from %s to %s ends outside of them", l.From, l.To)
			}
			if l.laneY > d.height {
				t.Fatalf("the edge from %s to %s is outside of the drawing", l.From, l.To)
			}
		}
	})
}
