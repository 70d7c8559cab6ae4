package failed

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Place is the work queue in which a message failed. queue is "" if it is not known.
type Place struct {
	Queue string

	// Claimed reports whether only a header, which the publisher may have written, names the queue. A replay must not
	// trust this header, because a publisher could choose the destination of the message. The broker's x-death is such a
	// header, too: RabbitMQ keeps the x-death of a publisher. Only the arguments of the queue prove it.
	Claimed bool
}

// PlaceOf returns the work queue in which a message failed. The result of origin takes precedence, unless it is "". The
// broker's x-death header takes precedence over the header of a Reprise worker, because a worker removes x-death from a
// message that it parks, and any publisher can write the header of a worker. (A publisher can write
// both headers. But if the message was dead-lettered, the broker has put its own entry before the publisher's.) Wait
// queues dead-letter messages that expire, and messages that an operator retries early. Therefore an entry names a work
// queue if its reason is not "expired" and its queue is neither a wait queue nor the failed queue.
func PlaceOf(m *reprise.Delivery, h topology.History, died []death, origin func(*reprise.Delivery) string) Place {
	if origin != nil {
		if queue := origin(m); queue != "" {
			return Place{Queue: queue}
		}
	}
	claim := func(queue string) Place { return Place{queue, !Confirms(m.Queue, queue)} }
	if queue := rejectedFrom(died, m.Queue); queue != "" {
		return claim(queue)
	}
	if h.Queue != "" {
		return claim(h.Queue)
	}
	if first, ok := m.Headers["x-first-death-queue"].(string); ok && !amqpvalue.IsWaitQueue(first) {
		return claim(first)
	}
	for _, d := range died {
		if !amqpvalue.IsWaitQueue(d.queue) {
			return claim(d.queue)
		}
	}
	return Place{}
}

// deadSuffix matches what programs and people append to the name of a work queue for the name of its dead-letter queue.
var deadSuffix = regexp.MustCompile(`^[._:/-](?i:xq|dead|dlq|dlx|dead[-_.]?letters?|failed|failures?|errors?|skipped|poison|poisoned|parking[-_.]?lot)$`)

// Confirms reports whether the name of a failed queue confirms that its messages failed in a work queue.
func Confirms(failedQueue, queue string) bool {
	rest, found := strings.CutPrefix(failedQueue, amqpvalue.WorkQueue(queue))
	return found && queue != "" && deadSuffix.MatchString(rest)
}

// RejectedFrom returns the queue from which the broker dead-lettered a message for a reason other than expiry, or "". It ignores wait
// queues and the failed queue.
func RejectedFrom(headers topology.Table, failedQueue string) string {
	return rejectedFrom(Deaths(headers), failedQueue)
}

func rejectedFrom(died []death, failedQueue string) string {
	for _, d := range died {
		if d.reason != "expired" && d.queue != failedQueue && !amqpvalue.IsWaitQueue(d.queue) {
			return d.queue
		}
	}
	return ""
}

// NamedBy derives the name of the work queue from the name of a failed queue: see topology.FailedQueue.
func NamedBy(failedQueue string) string { return strings.TrimSuffix(failedQueue, ".failed") }

// OrByName returns p. If p has no queue, orByName derives it from the name of the failed queue.
func (p Place) OrByName(failedQueue string) Place {
	p.Queue = cmp.Or(p.Queue, NamedBy(failedQueue))
	return p
}
