package failed

import (
	"cmp"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// place is the work queue that a message failed in; "" is none that anything says.
type place struct {
	queue string

	// claimed: only a header names it, which whoever published the message can have written.
	// If that were believed, a publisher could choose the queue that the message is sent to.
	claimed bool
}

// placeOf is where a message failed: as the origin has it, if that knows. Else what the
// broker says comes before the header that a Reprise worker writes, since a worker takes the
// broker's off whatever it parks, and anybody can write the worker's. (Before RabbitMQ 4
// anybody can write both; but whoever had the message dead-lettered could not help
// that the broker put its own account first.) Wait queues dead-letter what expires, and
// what an operator retries ahead of time, so that any other entry names a work queue.
func placeOf(m *reprise.Message, h topology.History, died []death, origin func(*reprise.Message) string) place {
	if origin != nil {
		if queue := origin(m); queue != "" {
			return place{queue: queue}
		}
	}
	for _, d := range died {
		if d.reason != "expired" && d.queue != m.Queue && !amqpvalue.IsWaitQueue(d.queue) {
			return place{queue: d.queue}
		}
	}
	claim := func(queue string) place {
		named := queue == namedBy(m.Queue) // as the failed queue has it itself
		broker := slices.ContainsFunc(died, func(d death) bool { return d.queue == queue })
		return place{queue, !named && !broker}
	}
	if h.Queue != "" {
		return claim(h.Queue)
	}
	if first, ok := m.Headers["x-first-death-queue"].(string); ok && !amqpvalue.IsWaitQueue(first) {
		return claim(first)
	}
	for _, d := range died {
		if !amqpvalue.IsWaitQueue(d.queue) {
			return place{queue: d.queue}
		}
	}
	return place{}
}

// namedBy is the work queue that the name of a failed queue says: see topology.FailedQueue.
func namedBy(failedQueue string) string { return strings.TrimSuffix(failedQueue, ".failed") }

// orByName is the place, or what the name of the failed queue says.
func (p place) orByName(failedQueue string) place {
	p.queue = cmp.Or(p.queue, namedBy(failedQueue))
	return p
}
