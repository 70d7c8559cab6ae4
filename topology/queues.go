package topology

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// MaxDelay is the maximum delay of every Route except Levels: 2³²-1 milliseconds, 49 days and 17 hours. RabbitMQ
// accepts up to ten years, but other programs may not. Levels supports longer delays.
const MaxDelay = math.MaxUint32 * time.Millisecond

// DeliveryLimit is the delivery limit of the work queues that Buckets and Levels declare, and that MessageTTL and
// GrowingTTL declare if they have no Infrastructure. If a message was delivered more than 20 times and never settled, for
// example because its handler terminates the process each time, the broker moves the message to the failed queue. RabbitMQ
// 4.0 and later use the same default; earlier versions have no default.
const DeliveryLimit = 20

// unlimited is the delivery limit of queues from which the broker must not drop messages. RabbitMQ
// 3.10 has no value for "no limit", and since 4.0 the default is 20.
const unlimited = int64(math.MaxInt32)

// FailedQueue returns the name of the failed queue, a dead-letter queue, of a work queue: queue +
// ".failed".
func FailedQueue(queue string) string { return queue + ".failed" }

// failed returns the hop into the failed queue.
func failed(queue string) Hop {
	name := FailedQueue(queue)
	return Hop{RoutingKey: name, Topology: Topology{Queues: []Queue{failedQueue(name)}}}
}

// failedQueue returns a queue that does not drop messages, even if readers requeue them many times. A quorum queue with the
// default limit drops a message after its 21st failed delivery
// (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
func failedQueue(name string) Queue {
	return Queue{Name: name, Args: Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}}
}

// quorum returns the arguments of a quorum queue that dead-letters at least once to exchange, with key as the routing key.
// An empty key keeps the routing key of the message. https://www.rabbitmq.com/docs/quorum-queues#dead-lettering
func quorum(exchange, key string) Table {
	args := Table{
		"x-queue-type":           "quorum",
		"x-dead-letter-exchange": exchange,
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // required for at-least-once
	}
	if key != "" {
		args["x-dead-letter-routing-key"] = key
	}
	return args
}

// waitQueue returns a queue that dead-letters expired messages to exchange, with key as the routing key. It never sets
// x-expires, because the broker would delete an unused queue together with its messages.
func waitQueue(name, exchange, key string) Queue {
	return Queue{Name: name, Args: quorum(exchange, key)}
}

// workAndFailed returns a work queue, which is declared only if it does not exist, and its failed queue. The work
// queue dead-letters into the failed queue, so RabbitMQ does not drop a message that exceeds the delivery limit.
func workAndFailed(queue, failed string) Topology {
	return Topology{Queues: []Queue{
		{Name: queue, IfAbsent: true, Args: quorum("", failed).with("x-delivery-limit", int64(DeliveryLimit))},
		failedQueue(failed),
	}}
}

// validateNames reports a work queue whose derived names are longer than AMQP permits.
func validateNames(queue string, names ...string) error {
	for _, name := range names {
		if over := len(name) - maxName; over > 0 {
			return fmt.Errorf("topology: work queue %.40q… must have a name of at most %d bytes: got %d (the queue %q has a longer name; AMQP permits 255 bytes)", queue, len(queue)-over, len(queue), strings.Replace(name, queue, "{queue}", 1))
		}
	}
	return nil
}

// milliseconds rounds up, so that no message is early. A negative duration counts as 0.
func milliseconds(d time.Duration) int64 {
	d = max(0, d)
	ms := d.Milliseconds()
	if d%time.Millisecond != 0 {
		ms++
	}
	return ms
}
