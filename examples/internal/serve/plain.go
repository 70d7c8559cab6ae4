package serve

import (
	"slices"

	"github.com/reprisemq/reprise/topology"
)

// guards are arguments that the presets set on their quorum queues against message loss, and that other programs do not
// set. A declaration with different values fails.
var guards = []string{"x-delivery-limit", "x-dead-letter-strategy", "x-overflow"}

// Plain returns a design with the queue arguments of other programs, which set only the type. It does not change the queues in own,
// which only Reprise uses.
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
