package preset

import (
	"fmt"
	"math"

	"github.com/reprisemq/reprise/topology"
)

// unlimited is the x-delivery-limit of queues where RabbitMQ is not to give up on a
// message. 3.10 takes no value that means none, and left out it is 20 since 4.0.
const unlimited = int64(math.MaxInt32)

// failedQueue keeps a message, however often somebody looks at it and puts it back.
func failedQueue(name string) topology.Queue {
	return topology.Queue{Name: name, Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}}
}

// validateQueueType reports a type that the queues of a design cannot have: from a
// stream, for instance, nothing is ever taken away.
func validateQueueType(design, queueType string) error {
	switch queueType {
	case "", "classic", "quorum":
		return nil
	}
	return fmt.Errorf("preset: %s.QueueType %q: use \"classic\" or \"quorum\", or \"\" to leave it to the broker", design, queueType)
}
