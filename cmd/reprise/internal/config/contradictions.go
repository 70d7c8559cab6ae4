package config

import (
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// contradictions reports workers that declare an exchange or a queue differently from an earlier worker, because the
// broker would refuse the second declaration at startup. Workers of the same preset share exchanges and queues.
func (d *decoder) contradictions(workers []locatedWorker) {
	type declared struct {
		topology.Topology
		at Position // of the worker
	}
	before := map[string]declared{}
	for _, w := range workers {
		check := func(what, name string, t topology.Topology) {
			key := what + " " + brief.Quoted(name)
			other, found := before[key]
			switch {
			case !found:
				before[key] = declared{t, w.at}
			case other.Merge(t).Validate() != nil:
				d.failAt(w.at, "%s has different settings for the worker %s: use the same settings, or different names", key, other.at.from(w.at))
			}
		}
		t := w.Strategy.WithDefaults().Route.Topology(w.Queue).Merge(w.Topology)
		for _, x := range t.Exchanges {
			x.Args = nil // none of the arguments that RabbitMQ compares is used here
			check("exchange", x.Name, topology.Topology{Exchanges: []topology.Exchange{x}})
		}
		for _, q := range t.Queues {
			if !q.IfAbsent {
				check("queue", q.Name, topology.Topology{Queues: []topology.Queue{q}})
			}
		}
	}
}
