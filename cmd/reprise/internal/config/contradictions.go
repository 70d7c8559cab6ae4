package config

import (
	"github.com/reprisemq/reprise/topology"
)

// contradictions are what workers declare, by name. Workers of one file share
// exchanges and queues, those of one preset in particular, and where two of them want
// one declared differently, the broker refuses the second at the start.
type contradictions struct {
	queues    map[string]declared
	exchanges map[string]declared
}

// declared is a declaration, with the line of the worker that it is for.
type declared struct {
	topology.Topology
	line int
}

func newContradictions() *contradictions {
	return &contradictions{map[string]declared{}, map[string]declared{}}
}

// add reports a worker that contradicts one before it.
func (c *contradictions) add(d *decoder, w located) {
	t := w.Strategy.WithDefaults().Route.Topology(w.Queue).Merge(w.Topology)
	for _, x := range t.Exchanges {
		x.Args = nil // RabbitMQ does not compare them, but for some that nothing here has
		c.check(d, w, c.exchanges, "exchange", x.Name, topology.Topology{Exchanges: []topology.Exchange{x}})
	}
	for _, q := range t.Queues {
		if !q.IfAbsent {
			c.check(d, w, c.queues, "queue", q.Name, topology.Topology{Queues: []topology.Queue{q}})
		}
	}
}

func (c *contradictions) check(d *decoder, w located, before map[string]declared, what, name string, t topology.Topology) {
	other, found := before[name]
	switch {
	case !found:
		before[name] = declared{t, w.at.Line}
	case other.Merge(t).Validate() != nil:
		d.fail(w.at, "%s %s would have to be another for this worker than for the one on line %d: give both the same settings, or names of their own", what, quoted(name), other.line)
	}
}
