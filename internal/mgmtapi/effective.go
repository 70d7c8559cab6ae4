package mgmtapi

import (
	"slices"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// policyWins lists the settings of quorum queues in which a policy takes precedence over the argument (rabbit_quorum_queue).
var policyWins = []string{"overflow", "delayed-retry-type"}

// Effective returns the effective value of the setting x-key or key of a queue: of its argument, of its policies, or of both.
// As in RabbitMQ, the lower of two limits applies, and otherwise the argument, except for some settings of quorum queues. The
// policy is the effective definition of all policies of the queue, and kind its type, such as "quorum".
func Effective(kind string, args, policy map[string]any, key string) (value any, found bool) {
	argument, given := args["x-"+key]
	other, set := policy[key]
	a, limit := Integer(argument)
	p, limited := Integer(other)
	switch {
	case !given:
		return other, set
	case !set:
		return argument, true
	case limit && limited && key == "delivery-limit" && min(a, p) < 0:
		return max(a, p), true // a negative number means no limit
	case limit && limited:
		return min(a, p), true
	case kind == "quorum" && slices.Contains(policyWins, key):
		return other, true
	}
	return argument, true
}

// effectiveArgs returns the arguments of a queue with those that its policies set.
func effectiveArgs(kind string, args, policy topology.Table) topology.Table {
	all := args.Clone()
	for key := range policy {
		all["x-"+key], _ = Effective(kind, args, policy, key)
	}
	return all
}

// Integer converts an integer of JSON or of a table to an int64, and reports whether v is an integer.
func Integer(v any) (int64, bool) {
	if n, ok := v.(float64); ok {
		return int64(n), n == float64(int64(n))
	}
	return amqpvalue.Integer(v)
}
