package serve

import (
	"slices"

	"github.com/reprisemq/reprise/topology"
)

// guards are what a preset gives its quorum queues, for nothing to be lost in
// them, and other programs do not: queues are equal only where all these are.
var guards = []string{"x-delivery-limit", "x-dead-letter-strategy", "x-overflow"}

// Plain returns a design with its queues as other programs declare them, who name
// the type and nothing else of these. Those of Reprise's own, which others do not
// know, stay as they are.
func Plain(design topology.Topology, own ...string) topology.Topology {
	design.Queues = slices.Clone(design.Queues)
	for i, q := range design.Queues {
		if slices.Contains(own, q.Name) {
			continue
		}
		args := q.Args.Clone()
		for _, guard := range guards {
			delete(args, guard)
		}
		design.Queues[i].Args = args
	}
	return design
}
