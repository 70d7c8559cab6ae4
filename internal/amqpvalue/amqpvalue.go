// Package amqpvalue reads values that the broker and other programs write into headers, arguments and names. It is internal,
// because several packages share it. It imports the standard library only.
package amqpvalue

import (
	"math"
	"regexp"
	"strings"
)

// Integer returns v as an int64 if it is an integer of any width. Programs in other languages
// write counters in the width that their client prefers.
func Integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int:
		return int64(n), true
	case int8:
		return int64(n), true
	case int16:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case uint8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case uint:
		return int64(min(uint64(n), math.MaxInt64)), true
	case uint64:
		return int64(min(n, math.MaxInt64)), true
	}
	return 0, false
}

// MaxCount is the highest count. It is one less than the maximum of 32 bits, so that the number of the next attempt fits.
const MaxCount = math.MaxInt32 - 1

// Count reads a counter that another program wrote. A value that is not an integer counts as 0.
func Count(v any) int {
	n, _ := Integer(v)
	return int(min(max(n, 0), MaxCount))
}

// DeliveryCount returns the number of failed deliveries of a message before this delivery, according to the header of quorum
// queues (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling). The header of a first delivery was published
// with the message and counts as 0. After a failed delivery, a quorum queue overwrites the header with its own count. Until
// then, and always on a classic queue, DeliveryCount returns the published header of a redelivered message. This can only
// reduce the number of attempts.
func DeliveryCount(redelivered bool, headers map[string]any) int {
	if !redelivered {
		return 0
	}
	return Count(headers["x-delivery-count"])
}

// IsBrokerHeader reports whether RabbitMQ writes the header to record earlier deliveries and
// dead-lettering. Such a header belongs to the delivery, not to the message. A copy must not be
// published with it: some RabbitMQ releases drop the header, and in others it misleads the
// detection of dead-letter cycles.
func IsBrokerHeader(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// waitQueue matches three forms of names: topology.Buckets, Levels to a queue, and Levels to an
// exchange.
var waitQueue = regexp.MustCompile(`(?s)\.wait\.[0-9]+-[0-9]+$|\.level\.[0-9]+$|^exchange\..+\.level-[0-9]+$`)

// IsWaitQueue reports whether name has the form of a queue of topology.Buckets or Levels. Programs
// should not consume from such a queue.
func IsWaitQueue(name string) bool { return waitQueue.MatchString(name) }

// Crashes returns the number of earlier deliveries of d that were neither acknowledged nor copied, because the process
// exited or the connection was lost. If the broker's count includes other attempts, the topology.Marks implement a method
// Crashes(d D) int. Otherwise the result is the count of the queue, which is always 0 on classic queues. Before RabbitMQ
// 4.3, the count includes requeued deliveries. Since RabbitMQ 4.3, the count of a dead-lettered message includes its failed
// deliveries from another quorum queue.
func Crashes[D any](marks any, d D, redelivered bool, headers map[string]any) int {
	if c, ok := marks.(interface{ Crashes(d D) int }); ok {
		return c.Crashes(d)
	}
	return DeliveryCount(redelivered, headers)
}
