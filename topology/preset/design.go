package preset

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// design is one of this package.
type design interface {
	Validate() error                  // of the settings
	validateQueue(queue string) error // of a worker's queue
}

// designed is the Route of a design. NewWorker asks it about the design's own settings,
// which say more than what has become of them in package topology.
type designed struct {
	topology.Route
	design design
}

// Unwrap returns the route, for who wants to know of what kind it is.
func (r designed) Unwrap() topology.Route { return r.Route }

// Validate is asked by topology.Strategy.
func (r designed) Validate() error { return r.design.Validate() }

// ValidateQueue is asked by topology.Strategy.
func (r designed) ValidateQueue(queue string) error { return r.design.validateQueue(queue) }

// maxName is the longest name AMQP can carry.
const maxName = 255

// unlimited is the x-delivery-limit of queues where RabbitMQ is not to give up on a
// message. 3.10 takes no value that means none, and left out it is 20 since 4.0.
const unlimited = int64(math.MaxInt32)

// failedQueue keeps a message, however often somebody looks at it and puts it back.
func failedQueue(name string) topology.Queue {
	return topology.Queue{Name: name, Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}}
}

// validateQueueType reports a type that the queues of a design cannot have: from a
// stream, for instance, nothing is ever taken away. "" does what is said.
func validateQueueType(field, queueType, otherwise string) error {
	switch queueType {
	case "", "classic", "quorum":
		return nil
	}
	return fmt.Errorf("preset: %s %q: use \"quorum\" or \"classic\", or leave it empty %s", field, queueType, otherwise)
}

// validateKind reports a kind of exchange that does not go by the routing key.
func validateKind(field, kind string) error {
	switch kind {
	case "", topology.Direct, topology.Fanout, topology.Topic:
		return nil
	}
	return fmt.Errorf("preset: %s %q: use %q, %q or %q, whichever the exchange is deployed with", field, kind, topology.Direct, topology.Fanout, topology.Topic)
}

// validateDelay reports a delay that a queue or a message cannot have. 0 is the default.
func validateDelay(field string, d, byDefault time.Duration) error {
	if d == 0 || d >= time.Millisecond && d%time.Millisecond == 0 && d <= topology.MaxDelay {
		return nil
	}
	return fmt.Errorf("preset: %s %s: use whole milliseconds, from 1ms to %s, or 0 for %s", field, d, topology.MaxDelay, byDefault)
}

// oneOf reports a queue that is none of a design's work queues.
func oneOf(design, queue string, work ...string) error {
	names := make([]string, len(work))
	for i, name := range work {
		if queue == name {
			return nil
		}
		names[i] = fmt.Sprintf("%q", name)
	}
	last := len(names) - 1
	these := names[last]
	if last > 0 {
		these = strings.Join(names[:last], ", ") + " or " + these
	}
	return fmt.Errorf("preset: %s has no work queue %q: use %s", design, queue, these)
}
