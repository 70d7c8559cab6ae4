package serve

import (
	"slices"

	"github.com/reprisemq/reprise/topology"
)

// guards are the queue arguments that the presets set on quorum queues to prevent message loss. Other programs do not
// set these arguments, and a declaration with different arguments fails.
var guards = []string{"x-delivery-limit", "x-dead-letter-strategy", "x-overflow"}

// Plain returns design without the arguments that other programs do not set on queues (see guards). It does not change
// the queues in own, which only Reprise uses.
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
