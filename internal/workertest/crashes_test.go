package workertest

import (
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// crashCount returns the number of crashes that a worker counts.
func crashCount(m topology.Marks, d topology.Delivery) int {
	return amqpvalue.Crashes(m, d, d.Redelivered, d.Headers)
}
