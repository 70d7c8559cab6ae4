// Package graph draws what workers declare on a broker: exchanges, work queues,
// and the ways of a message that fails, with how long it waits on them.
//
//	              fails, up to 9 retries
//	orders ──────────────────────────────► orders.wait.*
//	   ▲                                        │
//	   └────────────────────────────────────────┘ after 500ms to 1h
//
// It is made of values and asks no broker. A Graph can be written as DOT for Graphviz and as
// Mermaid for Markdown.
package graph

import (
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Worker is what the graph has to know of one.
type Worker struct {
	Queue    string
	Strategy topology.Strategy
	Topology topology.Topology // what it declares besides the Strategy's
	Attempts int               // the most there are; the Strategy may have a number of its own
	Backoff  backoff.Backoff   // of its policy
}

// Of is the worker of a configuration.
func Of(c reprise.WorkerConfig) Worker {
	policy := c.Policy.WithDefaults()
	return Worker{
		Queue: c.Queue, Strategy: c.Strategy, Topology: c.Topology,
		Attempts: policy.MaxAttempts, Backoff: policy.Backoff,
	}
}

// Kind is what a node is for.
type Kind string

// The kinds of nodes. The words are also classes of Mermaid and of the console.
const (
	Exchange Kind = "exchange"
	Work     Kind = "work"
	Wait     Kind = "wait"
	Failed   Kind = "failed"
	Other    Kind = "queue" // a queue that none of the workers is about
)

// Node is an exchange, a queue, or wait queues that differ in their delay only.
type Node struct {
	ID   string // "exchange/NAME" or "queue/NAME": both may have the same name
	Name string // with a * at its end where it stands for several queues
	Kind Kind
	Note string // such as the kind of an exchange; may be empty

	Count *Count // nil: not known
}

// Count is how many messages a queue has.
type Count struct{ Ready, Unacked int64 }

// matches reports whether the node is a queue of that name, or stands for it.
func (n Node) matches(queue string) bool {
	if n.Kind == Exchange {
		return false
	}
	if prefix, several := strings.CutSuffix(n.ID, "*"); several {
		return strings.HasPrefix("queue/"+queue, prefix) && amqpvalue.IsWaitQueue(queue)
	}
	return n.ID == "queue/"+queue
}

// Way is why messages take an edge.
type Way string

// The ways. The words are also classes of Mermaid and of the console.
const (
	Bound   Way = "bound"   // by a binding
	Retried Way = "retried" // an attempt failed
	Returns Way = "returns" // the wait is over
	Parked  Way = "parked"  // no retry is left
)

// Edge is a way from one node to another.
type Edge struct {
	From, To string // IDs
	Way      Way
	Labels   []string // one line each
}

// Graph is what some workers declare. Nodes and edges are in the order in which
// they came up: the same workers give the same graph.
type Graph struct {
	Nodes []Node
	Edges []Edge
}

// Count writes on each queue how many messages it has. Queues that are not on
// the broker stay without a count; wait queues are added up.
func (g *Graph) Count(queues map[string]Count) {
	for i := range g.Nodes {
		for name, c := range queues {
			if !g.Nodes[i].matches(name) {
				continue
			}
			if g.Nodes[i].Count == nil {
				g.Nodes[i].Count = &Count{}
			}
			g.Nodes[i].Count.Ready += c.Ready
			g.Nodes[i].Count.Unacked += c.Unacked
		}
	}
}

func (g *Graph) find(id string) int {
	return slices.IndexFunc(g.Nodes, func(n Node) bool { return n.ID == id })
}

// node returns the node of that ID, which may be new.
func (g *Graph) node(id string, kind Kind) *Node {
	i := g.find(id)
	if i < 0 {
		_, name, _ := strings.Cut(id, "/")
		g.Nodes = append(g.Nodes, Node{ID: id, Name: name, Kind: kind})
		i = len(g.Nodes) - 1
	}
	return &g.Nodes[i]
}

// edge adds a way, or a label to one that is there.
func (g *Graph) edge(from, to string, way Way, label string) {
	i := slices.IndexFunc(g.Edges, func(e Edge) bool { return e.From == from && e.To == to && e.Way == way })
	if i < 0 {
		g.Edges = append(g.Edges, Edge{From: from, To: to, Way: way})
		i = len(g.Edges) - 1
	}
	if label != "" && !slices.Contains(g.Edges[i].Labels, label) {
		g.Edges[i].Labels = append(g.Edges[i].Labels, label)
	}
}

// Beyond returns the nodes to which messages go from one, directly or through exchanges alone.
func (g *Graph) Beyond(id string) []string {
	all := []string{id}
	for i := 0; i < len(all); i++ { // grows while it is walked
		if at := g.find(all[i]); i > 0 && (at < 0 || g.Nodes[at].Kind != Exchange) {
			continue
		}
		for _, e := range g.Edges {
			if e.From == all[i] && !slices.Contains(all, e.To) {
				all = append(all, e.To)
			}
		}
	}
	return all[1:]
}

// span is how long messages wait at the least and at the most.
type span struct{ low, high time.Duration }

func (s span) with(o span) span {
	if s == (span{}) {
		return o
	}
	return span{min(s.low, o.low), max(s.high, o.high)}
}

func (s span) String() string {
	if s.high > s.low {
		return Duration(s.low) + " to " + Duration(s.high)
	}
	return Duration(s.low)
}
