package topology

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// MaxDelay is the longest that Buckets, WaitQueue, MessageTTL and DeadLettering keep a
// message waiting: 2³²-1 milliseconds, 49 days and 17 hours. RabbitMQ itself takes up
// to ten years, but other programs that look at these queues may not. Levels wait for
// longer.
const MaxDelay = math.MaxUint32 * time.Millisecond

// DeliveryLimit is how often the work queue delivers a message that is never
// settled (its handler kills the process each time) before it is parked. It is
// RabbitMQ's own default since 4.0; before, there was none.
const DeliveryLimit = 20

// unlimited is the delivery limit of queues where the broker is not to give up
// on a message. There is no value for "never" that RabbitMQ 3.10 understands
// too, and none given is 20 since 4.0.
const unlimited = int64(math.MaxInt32)

// FailedQueue is the name of a work queue's parking lot: queue + ".failed".
func FailedQueue(queue string) string { return queue + ".failed" }

// failed returns the hop into it.
func failed(queue string) Hop {
	name := FailedQueue(queue)
	return Hop{RoutingKey: name, Topology: Topology{Queues: []Queue{failedQueue(name)}}}
}

// failedQueue keeps a message however often somebody looks at it and puts it
// back: a quorum queue left to its default drops it at the 21st time
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
func failedQueue(name string) Queue {
	return Queue{Name: name, Args: Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}}
}

// quorum returns the arguments of a quorum queue that loses nothing of what it
// dead-letters to key, through exchange; without a key, under the message's own.
// https://www.rabbitmq.com/docs/quorum-queues#dead-lettering
func quorum(exchange, key string) Table {
	args := Table{
		"x-queue-type":           "quorum",
		"x-dead-letter-exchange": exchange,
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // without which it would not be at least once
	}
	if key != "" {
		args["x-dead-letter-routing-key"] = key
	}
	return args
}

// waitQueue is a queue whose messages expire to key, through exchange. It never
// has x-expires: the broker deletes an unused queue with the messages in it.
func waitQueue(name, exchange, key string) Queue {
	return Queue{Name: name, Args: quorum(exchange, key)}
}

// workAndFailed returns a work queue, declared only if it does not exist, and
// its failed queue, where the work queue's dead letters go: even a message that
// RabbitMQ itself gives up on (delivery limit) is parked and not dropped.
func workAndFailed(queue, failed string) Topology {
	return Topology{Queues: []Queue{
		{Name: queue, IfAbsent: true, Args: quorum("", failed).with("x-delivery-limit", int64(DeliveryLimit))},
		failedQueue(failed),
	}}
}

// validateNames reports a work queue for which one of the names made from it
// would be longer than AMQP can carry.
func validateNames(queue string, names ...string) error {
	for _, name := range names {
		if over := len(name) - maxName; over > 0 {
			return fmt.Errorf("topology: the work queue's name %.40q… has %d bytes: use at most %d, since the queue %q goes with it, and 255 are possible",
				queue, len(queue), len(queue)-over, strings.Replace(name, queue, "{queue}", 1))
		}
	}
	return nil
}

// milliseconds rounds up, so that no message comes early; negative counts as 0.
func milliseconds(d time.Duration) int64 {
	d = max(0, d)
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}
