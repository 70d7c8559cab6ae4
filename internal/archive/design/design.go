// Package design derives from the configurations of workers where their failed messages are, and to which worker a failed
// message belongs. It knows the published designs (internal/preset), whose programs park messages without a header.
package design

import (
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// FailedQueues returns the failed queues of workers, in order and without duplicates.
func FailedQueues(workers []reprise.WorkerConfig) (queues []string) {
	var all topology.Topology
	for _, t := range Topologies(workers) {
		all = all.Merge(t)
	}
	for _, w := range workers {
		hop, _ := parks(w)
		reached, _ := all.Reach(hop.Exchange, hop.RoutingKey) // no queues if the routing key does not determine them
		for _, queue := range reached {
			works := func(w reprise.WorkerConfig) bool { return w.Queue == queue }
			if !slices.Contains(queues, queue) && !slices.ContainsFunc(workers, works) {
				queues = append(queues, queue)
			}
		}
	}
	return queues
}

// Topologies returns the declarations of workers.
func Topologies(workers []reprise.WorkerConfig) []topology.Topology {
	var all []topology.Topology
	for _, w := range workers {
		_, declares := parks(w)
		all = append(all, declares)
	}
	return all
}

// parks returns the destination of the worker's failed messages, and all declarations of the worker. A message arrives
// through an exchange to which the queue is bound or, without a binding, through the default exchange.
func parks(w reprise.WorkerConfig) (topology.Hop, topology.Topology) {
	route := w.Strategy.WithDefaults().Route
	declares := route.Topology(w.Queue).Merge(w.Topology)
	d := topology.Delivery{Queue: w.Queue, RoutingKey: w.Queue}
	if i := slices.IndexFunc(declares.Bindings, func(b topology.Binding) bool { return b.Queue == w.Queue }); i >= 0 {
		d.Exchange, d.RoutingKey = declares.Bindings[i].Exchange, declares.Bindings[i].RoutingKey
	}
	hop := route.Failed(d)
	return hop, declares.Merge(hop.Topology)
}

// Marks returns the marks of workers: the headers in which they record attempts.
func Marks(workers []reprise.WorkerConfig) []topology.Marks {
	var marks []topology.Marks
	for _, w := range workers {
		marks = append(marks, w.Strategy.WithDefaults().Marks)
	}
	return marks
}

// Origin returns a function that returns the work queue of a message in a failed queue, or "" if the work queue is
// unknown. If only one worker parks messages in the failed queue, the function returns the queue of that worker. If
// several do, it returns the queue that the header of the message names or, without the header, the queue that
// receives messages with the routing key. If none of these workers consumes the queue that the header names, the
// function returns the name of the failed queue. If the queue of the worker is divided, the function returns the lane or the
// partition that the header names.
func Origin(workers []reprise.WorkerConfig) func(*reprise.Delivery) string {
	type origin struct {
		queue   string
		keys    []string
		sources []string // lanes or partitions
	}
	parked := map[string][]origin{} // by name of the failed queue
	for _, w := range workers {
		o := origin{queue: w.Queue, keys: []string{w.Queue}} // published directly to the queue
		_, declares := parks(w)
		for _, b := range declares.Bindings {
			if b.Queue == w.Queue {
				o.keys = append(o.keys, b.RoutingKey)
			}
		}
		for _, q := range declares.Queues {
			if q.Name != w.Queue && amqpvalue.WorkQueue(q.Name) == w.Queue {
				o.sources = append(o.sources, q.Name)
			}
		}
		for _, queue := range FailedQueues([]reprise.WorkerConfig{w}) {
			parked[queue] = append(parked[queue], o)
		}
	}
	return func(m *reprise.Delivery) string {
		candidates := slices.Clone(parked[m.Queue])
		named, written := m.Headers[topology.HeaderQueue].(string)
		if len(candidates) > 1 {
			candidates = slices.DeleteFunc(candidates, func(o origin) bool {
				return written && o.queue != amqpvalue.WorkQueue(named) || !written && !slices.Contains(o.keys, m.RoutingKey)
			})
			if written && len(candidates) == 0 {
				return m.Queue
			}
		}
		switch {
		case len(candidates) != 1:
			return ""
		case candidates[0].sources == nil:
			return candidates[0].queue
		case slices.Contains(candidates[0].sources, named):
			return named
		}
		return "" // the broker has dead-lettered it, and its headers name the lane
	}
}

// Published returns the workers of published designs with distinctive names, for programs that have no configuration of
// the workers.
func Published() []reprise.WorkerConfig {
	var workers []reprise.WorkerConfig
	for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue} {
		workers = append(workers, reprise.WorkerConfig{Queue: queue, Strategy: preset.CoverArt{}.Strategy()})
	}
	return workers
}

// PublishedOrigin is Origin for Published. For a message with the header, the returned function returns "".
func PublishedOrigin() func(*reprise.Delivery) string {
	known := Origin(Published())
	return func(m *reprise.Delivery) string {
		if _, written := m.Headers[topology.HeaderQueue]; written {
			return ""
		}
		return known(m)
	}
}
