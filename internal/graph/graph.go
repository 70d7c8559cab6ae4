// Package graph draws the objects that workers declare on a broker: exchanges, work queues, and the paths of failed
// messages, with their waiting times.
//
//	              fails, up to 9 retries
//	orders ──────────────────────────────► orders.wait.*
//	   ▲                                        │
//	   └────────────────────────────────────────┘ after 500ms to 1h
//
// The package does not connect to a broker. It writes a Graph as DOT for Graphviz or as Mermaid for Markdown.
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

// Worker contains the properties of a worker that the graph shows.
type Worker struct {
	Queue    string
	Strategy topology.Strategy
	Topology topology.Topology // declared in addition to the topology of the Strategy
	Attempts int               // maximum number of attempts; the Strategy may have another limit
	Backoff  backoff.Backoff   // of the policy
}

// Of returns the Worker for a configuration.
func Of(c reprise.WorkerConfig) Worker {
	policy := c.Policy.WithDefaults()
	return Worker{
		Queue: c.Queue, Strategy: c.Strategy, Topology: c.Topology,
		Attempts: policy.MaxAttempts, Backoff: policy.Backoff,
	}
}

// Kind is the role of a node.
type Kind string

// Kinds of nodes. The strings are also class names in Mermaid and in the console.
const (
	Exchange Kind = "exchange"
	Work     Kind = "work"
	Wait     Kind = "wait"
	Failed   Kind = "failed"
	Other    Kind = "queue" // a queue with none of these roles
)

// Node is an exchange, a queue, or a group of wait queues that differ only in their delay.
type Node struct {
	ID   string // "exchange/NAME" or "queue/NAME", because an exchange and a queue may have the same name
	Name string // ends with .* for a group of queues
	Kind Kind
	Note string // for example the kind of an exchange; may be empty

	Count *Count // nil if unknown
}

// Count is the number of messages in a queue.
type Count struct{ Ready, Unacked int64 }

// matches reports whether the node is a queue with this name, or a group that contains this queue.
func (n Node) matches(queue string) bool {
	if n.Kind == Exchange {
		return false
	}
	if prefix, several := strings.CutSuffix(n.ID, "*"); several {
		return strings.HasPrefix("queue/"+queue, prefix) && amqpvalue.IsWaitQueue(queue)
	}
	return n.ID == "queue/"+queue
}

// Way is the reason why messages follow an edge.
type Way string

// Ways of edges. The strings are also class names in Mermaid and in the console.
const (
	Bound   Way = "bound"   // by a binding
	Retried Way = "retried" // an attempt failed
	Returns Way = "returns" // after the wait
	Parked  Way = "parked"  // no retry is left
)

// Edge leads from one node to another.
type Edge struct {
	From, To string // IDs of nodes
	Way      Way
	Labels   []string // one line each
}

// Graph represents the declarations of workers. Nodes and edges are in the order of their first use, so that equal workers
// have equal graphs.
type Graph struct {
	Nodes []Node
	Edges []Edge
}

// Count sets the number of messages of each queue. Queues that are not in the map have no count. The count of a group of
// wait queues is the sum of their counts.
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

// node returns the node with the given ID. It adds the node if it does not exist.
func (g *Graph) node(id string, kind Kind) *Node {
	i := g.find(id)
	if i < 0 {
		_, name, _ := strings.Cut(id, "/")
		g.Nodes = append(g.Nodes, Node{ID: id, Name: name, Kind: kind})
		i = len(g.Nodes) - 1
	}
	return &g.Nodes[i]
}

// edge adds an edge, or adds a label to an existing edge.
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

// Beyond returns the nodes to which messages go from a node, directly or only through exchanges.
func (g *Graph) Beyond(id string) []string {
	all := []string{id}
	for i := 0; i < len(all); i++ { // all grows during the loop
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

// span is the minimum and maximum waiting time of messages.
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
