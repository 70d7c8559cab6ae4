// Package flow builds the graph of exchanges and queues for the topology page, from the topology of the broker and the
// workers of this program.
package flow

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// NewGraph returns the graph of a topology. It combines the wait queues of a work queue (up to several dozen) and the
// exchanges between these queues into one node.
//
// A topology does not specify the destinations of failed messages. NewGraph takes the destinations from workers. For a
// work queue without a worker, it derives them from the names and the dead-letter arguments of queues.
func NewGraph(t topology.Topology, works []string, workers []graph.Worker, counts map[string]graph.Count) *graph.Graph {
	b := graphBuilder{
		Graph: &graph.Graph{}, names: map[string]bool{}, parked: map[string]bool{},
		index: map[string]int{}, waits: map[string]*waits{}, ways: map[way]int{}, into: map[string][]string{},
	}
	for _, q := range t.Queues {
		b.names[q.Name] = true
		if key, ok := q.Args["x-dead-letter-routing-key"].(string); ok && q.Args["x-dead-letter-exchange"] == "" && slices.Contains(works, q.Name) {
			b.parked[key] = true
		}
	}
	b.queues(t, works)
	b.exchanges(t)
	for _, d := range t.Bindings {
		to := exchangeID(d.ToExchange)
		if d.Queue != "" {
			to = queueID(d.Queue)
		}
		b.edge(exchangeID(d.Exchange), to, graph.Bound, d.RoutingKey)
	}
	for _, q := range t.Queues {
		b.deadLetters(q)
	}
	b.byName()
	b.byWayBack()
	b.labels()
	b.addReported(graph.New(workers))
	for name, c := range counts {
		if n := b.node(queueID(name)); n != nil {
			if n.Count == nil {
				n.Count = &graph.Count{}
			}
			n.Count.Ready += c.Ready
			n.Count.Unacked += c.Unacked
		}
	}
	for i, e := range b.Edges {
		if n := len(e.Labels); n > 3 {
			b.Edges[i].Labels = append(slices.Clone(e.Labels[:2]), "and "+show.Thousands(int64(n-2))+" more")
		}
	}
	return b.Graph
}

// labels sets the labels of the edges on which messages return from wait queues. The label is the range of the delays.
func (b *graphBuilder) labels() {
	for i, e := range b.Edges {
		if w := b.waits[e.From]; w != nil && e.Way == graph.Returns && w.high > 0 {
			from := graph.Duration(w.low) + " to "
			if w.low == 0 { // the first bucket begins at 0, but no delay is 0
				from = "up to "
			}
			b.Edges[i].Labels = []string{"after " + from + graph.Duration(w.high)}
		}
	}
}

type graphBuilder struct {
	*graph.Graph
	names  map[string]bool   // names of all queues
	parked map[string]bool   // queues to which known work queues dead-letter messages directly
	index  map[string]int    // indices of nodes, by ID and by the IDs of the queues and exchanges that a node combines
	waits  map[string]*waits // by the ID of the node that combines the wait queues
	ways   map[way]int       // indices of edges
	into   map[string][]string
}

// way identifies an edge. Edges with the same start and the same end have different reasons.
type way struct {
	from, to string
	why      graph.Way
}

func queueID(name string) string    { return "queue/" + name }
func exchangeID(name string) string { return "exchange/" + name }

func (b *graphBuilder) queues(t topology.Topology, works []string) {
	for _, q := range slices.SortedFunc(slices.Values(t.Queues), func(x, y topology.Queue) int { return cmp.Compare(x.Name, y.Name) }) {
		id := queueID(q.Name)
		if all, rest, ok := family(q.Name); ok {
			b.add(all, graph.Wait, "")
			b.index[id] = b.index[all]
			if b.waits[all] == nil {
				b.waits[all] = &waits{}
			}
			b.waits[all].add(rest)
			b.Nodes[b.index[all]].Note = show.Plural(int64(b.waits[all].n), "wait queue")
			continue
		}
		if k, ok := protocol.ReadKeyedQueue(q.Name); ok {
			b.keyed(id, k)
			continue
		}
		kind, note := b.kindOf(q, works)
		b.add(id, kind, note)
	}
}

// HeldQueues is the name of the node that combines the held queues of a work queue with order_by.
func HeldQueues(queue string) string { return queue + ".part.*.held" }

// keyed adds a queue of workers with order_by to the node of its work queue or to the node of the held queues.
func (b *graphBuilder) keyed(id string, k protocol.KeyedQueue) {
	work, held := queueID(k.Queue), queueID(HeldQueues(k.Queue))
	node := work
	if k.Held {
		node = held
		b.add(held, graph.Wait, "held queues")
	} else {
		b.add(work, graph.Work, "work queue in partitions")
	}
	b.index[id] = b.index[node]
	b.edge(work, held, graph.Retried, "fails")
	b.edge(held, work, graph.Returns, "in order")
}

func (b *graphBuilder) exchanges(t topology.Topology) {
	for _, e := range slices.SortedFunc(slices.Values(t.Exchanges), func(x, y topology.Exchange) int { return cmp.Compare(x.Name, y.Name) }) {
		if all, _, ok := family(e.Name); ok {
			if i, known := b.index[all]; known { // one of the exchanges between combined wait queues
				b.index[exchangeID(e.Name)] = i
				continue
			}
		}
		b.add(exchangeID(e.Name), graph.Exchange, e.Kind)
	}
}

// add adds a node, unless the graph already contains it.
func (b *graphBuilder) add(id string, kind graph.Kind, note string) {
	if _, known := b.index[id]; known {
		return
	}
	_, name, _ := strings.Cut(id, "/")
	b.index[id] = len(b.Nodes)
	b.Nodes = append(b.Nodes, graph.Node{ID: id, Name: brief.Visible(name), Kind: kind, Note: note})
}

// node returns the node that has the given ID or combines the object with this ID, or nil.
func (b *graphBuilder) node(id string) *graph.Node {
	if i, ok := b.index[id]; ok {
		return &b.Nodes[i]
	}
	return nil
}

// edge adds an edge between two different nodes. If the edge already exists, edge only adds the label. It does nothing
// if the graph does not contain both nodes.
func (b *graphBuilder) edge(from, to string, why graph.Way, label string) {
	f, t := b.node(from), b.node(to)
	if f == nil || t == nil || f == t {
		return
	}
	i, known := b.ways[way{f.ID, t.ID, why}]
	if !known {
		i = len(b.Edges)
		b.ways[way{f.ID, t.ID, why}] = i
		b.into[t.ID] = append(b.into[t.ID], f.ID)
		b.Edges = append(b.Edges, graph.Edge{From: f.ID, To: t.ID, Way: why})
	}
	if label = brief.Visible(label); label != "" && !slices.Contains(b.Edges[i].Labels, label) {
		b.Edges[i].Labels = append(b.Edges[i].Labels, label)
	}
}

// deadLetters adds the edge from q to the target of its dead letters, if q has a dead-letter exchange.
func (b *graphBuilder) deadLetters(q topology.Queue) {
	exchange, ok := q.Args["x-dead-letter-exchange"].(string)
	from := b.node(queueID(q.Name))
	if !ok || from == nil {
		return
	}
	to := exchangeID(exchange)
	if exchange == "" {
		key, _ := q.Args["x-dead-letter-routing-key"].(string)
		to = queueID(key)
	}
	way, label := graph.Retried, "rejected"
	ttl, waits := millis(q.Args["x-message-ttl"])
	switch {
	case from.Kind == graph.Work && b.node(to) != nil && b.node(to).Kind == graph.Failed:
		way, label = graph.Parked, "parked"
	case from.Kind != graph.Wait && waits:
		label = "rejected, or after " + graph.Duration(ttl)
	case from.Kind != graph.Wait:
	case b.waits[from.ID] != nil || !waits:
		way, label = graph.Returns, "when the time is up"
	default:
		way, label = graph.Returns, "after "+graph.Duration(ttl)
	}
	b.edge(from.ID, to, way, label)
}

// byName connects a work queue with the wait queues and the failed queue whose names begin with the name of the work
// queue.
func (b *graphBuilder) byName() {
	for _, n := range slices.Clone(b.Nodes) {
		if n.Kind != graph.Work {
			continue
		}
		name := strings.TrimPrefix(n.ID, "queue/")
		for _, mark := range waitMarks[:2] {
			b.edge(n.ID, queueID(name+mark+"*"), graph.Retried, "fails")
		}
		for _, failed := range []string{queueID(topology.FailedQueue(name)), queueID(name + stakingMark)} {
			if len(b.into[failed]) == 0 {
				b.edge(n.ID, failed, graph.Parked, "parked")
			}
		}
	}
}

// byWayBack connects work queues with the wait queues and failed queues that no other queue leads to. A wait queue
// belongs to the work queue to which its messages return. A failed queue belongs to the work queues whose names start
// with the name of the failed queue without its suffix "failed".
func (b *graphBuilder) byWayBack() {
	for _, n := range b.Nodes {
		if n.Kind != graph.Wait && n.Kind != graph.Failed {
			continue
		}
		entry, ok := b.entry(n.ID)
		if !ok {
			continue
		}
		name := strings.TrimPrefix(n.ID, "queue/")
		for _, w := range b.Nodes {
			switch {
			case w.Kind != graph.Work:
			case n.Kind == graph.Wait && slices.Contains(b.Beyond(n.ID), w.ID):
				b.edge(w.ID, entry, graph.Retried, "fails")
			case n.Kind == graph.Failed && strings.HasPrefix(strings.TrimPrefix(w.ID, "queue/"), strings.TrimSuffix(name, "failed")):
				b.edge(w.ID, entry, graph.Parked, "parked")
			}
		}
	}
}

// entry returns the node at which messages for a queue enter the graph: the queue itself, or the first exchange of the
// only chain of exchanges that leads to it. If a node on this path has several incoming edges, or its only incoming
// edge comes from a queue, ok is false.
func (b *graphBuilder) entry(id string) (entry string, ok bool) {
	for range b.Nodes { // a cycle of exchanges has no entry
		from := b.into[id]
		switch {
		case len(from) == 0:
			return id, true
		case len(from) > 1 || b.node(from[0]).Kind != graph.Exchange:
			return "", false
		}
		id = from[0]
	}
	return "", false
}
