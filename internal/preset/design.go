package preset

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// design is a retry design of this package.
type design interface {
	Validate() error                  // reports invalid settings
	validateQueue(queue string) error // reports a work queue that the design does not support
}

// designRoute is the Route of a design. It makes NewWorker validate the settings of the design instead of the derived
// settings of package topology, because errors about the design are more specific.
type designRoute struct {
	topology.Route
	design design
}

// Unwrap returns the inner route, for callers that need its type.
func (r designRoute) Unwrap() topology.Route { return r.Route }

// Validate is called by topology.Strategy.Validate.
func (r designRoute) Validate() error { return r.design.Validate() }

// ValidateQueue is called by topology.Strategy.ValidateQueue.
func (r designRoute) ValidateQueue(queue string) error { return r.design.validateQueue(queue) }

// maxName is the maximum length of a name in AMQP, in bytes.
const maxName = 255

// unlimited is the x-delivery-limit of queues from which RabbitMQ must not drop messages. RabbitMQ 3.10 has no value for "no
// limit", and the argument cannot be omitted because the default since 4.0 is 20.
const unlimited = int64(math.MaxInt32)

// failedQueue returns a queue that does not drop messages, even if readers requeue them many times.
func failedQueue(name string) topology.Queue {
	return topology.Queue{Name: name, Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}}
}

// validateQueueType reports a queue type that a design does not support, for example a stream, from which consumers cannot
// remove messages. In the error, otherwise is the effect of "".
func validateQueueType(field, queueType, otherwise string) error {
	switch queueType {
	case "", "classic", "quorum":
		return nil
	}
	return fmt.Errorf("preset: %s must be \"quorum\" or \"classic\": got %q (\"\" means %s)", field, queueType, otherwise)
}

// validateKind reports an exchange kind that no design supports, such as headers.
func validateKind(field, kind string) error {
	switch kind {
	case "", topology.Direct, topology.Fanout, topology.Topic:
		return nil
	}
	return fmt.Errorf("preset: %s must be the kind of the existing exchange, %q, %q or %q: got %q", field, topology.Direct, topology.Fanout, topology.Topic, kind)
}

// validateDelay reports a delay that a queue or a message does not support. 0 selects the default.
func validateDelay(field string, d, byDefault time.Duration) error {
	if d == 0 || d >= time.Millisecond && d%time.Millisecond == 0 && d <= topology.MaxDelay {
		return nil
	}
	return fmt.Errorf("preset: %s must be whole milliseconds from 1ms to %s: got %s (0 means %s)", field, topology.MaxDelay, d, byDefault)
}

// validateWorkQueue reports a queue that is not a work queue of the design.
func validateWorkQueue(design, queue string, work ...string) error {
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
	return fmt.Errorf("preset: work queue of %s must be %s: got %q", design, these, queue)
}
