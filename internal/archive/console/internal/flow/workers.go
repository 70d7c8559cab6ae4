package flow

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/graph"
)

// Worker is a worker of this program.
type Worker struct {
	Queue   string        // the work queue
	State   func() error  // returns nil if the worker is consuming, and otherwise the reason why not
	Breaker func() string // returns the state of the circuit breaker in one word; nil without a breaker

	// Config is the configuration of the worker, from which the topology page derives the attempts and the delays
	// between them. Default: nil; the page derives them from the arguments and names of the queues.
	Config *reprise.WorkerConfig
}

// Policies returns the workers that have a Config, and therefore a known retry policy.
func Policies(workers []Worker) (known []graph.Worker) {
	for _, w := range workers {
		if w.Config != nil {
			known = append(known, graph.Of(*w.Config))
		}
	}
	return known
}

// addReported adds g, which was built from the configurations of workers. Except for bindings, the edges of g replace
// the edges with the same start and reason that NewGraph derived from the topology. g is more exact: the name of a wait
// queue contains only the longest permitted delay, not the delays of the worker.
func (b *graphBuilder) addReported(g *graph.Graph) {
	replaced := map[way]bool{}
	for _, e := range g.Edges {
		replaced[way{from: e.From, why: e.Way}] = e.Way != graph.Bound
	}
	b.Edges = slices.DeleteFunc(b.Edges, func(e graph.Edge) bool { return replaced[way{from: e.From, why: e.Way}] })
	clear(b.ways)
	for i, e := range b.Edges {
		b.ways[way{e.From, e.To, e.Way}] = i
	}
	for _, n := range g.Nodes {
		kind, note := n.Kind, n.Note
		if kind == graph.Other {
			kind = graph.Work
		}
		if note == "" && kind != graph.Exchange {
			note = string(kind) + " queue"
		}
		b.add(n.ID, kind, note)
		if have := b.node(n.ID); have.Kind != kind && n.Kind != graph.Other && !strings.HasPrefix(n.ID, "exchange/") {
			have.Kind, have.Note = kind, note
		}
	}
	for _, e := range g.Edges {
		if e.From == e.To { // the messages wait in the work queue
			b.Edges = append(b.Edges, e)
			continue
		}
		for _, label := range append(slices.Clone(e.Labels), "") {
			b.edge(e.From, e.To, e.Way, label)
		}
	}
}
