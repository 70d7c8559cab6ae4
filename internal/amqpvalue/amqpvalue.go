// Package amqpvalue reads values that other programs and the broker write into headers, arguments
// and names. It exists because packages on both sides of topology need them, which are no API.
// It imports the standard library only.
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

// MaxCount is the highest count: the next attempt has a number in 32 bits, too.
const MaxCount = math.MaxInt32 - 1

// Count reads a counter that others wrote; anything but an integer is 0.
func Count(v any) int {
	n, _ := Integer(v)
	return int(min(max(n, 0), MaxCount))
}

// DeliveryCount returns how many deliveries of a message failed before this one, by the
// header of quorum queues (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
// The header of a first delivery was published with the message and counts as 0. After a failed
// delivery, a quorum queue writes its own count over it. Until then, and always on a classic
// queue, a published header of a redelivered message is believed: the message has fewer
// attempts, never more.
func DeliveryCount(redelivered bool, headers map[string]any) int {
	if !redelivered {
		return 0
	}
	return Count(headers["x-delivery-count"])
}

// IsBrokerHeader reports whether a header is RabbitMQ's own account of earlier deliveries
// and deaths. It belongs to the delivery, not to the message: published again, it misleads
// the cycle detection of some releases, and others drop it.
func IsBrokerHeader(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// waitQueue has three forms: of topology.Buckets, of Levels to a queue, of Levels to an
// exchange.
var waitQueue = regexp.MustCompile(`(?s)\.wait\.[0-9]+-[0-9]+$|\.level\.[0-9]+$|^exchange\..+\.level-[0-9]+$`)

// IsWaitQueue reports whether a queue of that name is one of topology.Buckets or Levels, by the
// form of the name: nobody should consume from it.
func IsWaitQueue(name string) bool { return waitQueue.MatchString(name) }

// Crashes returns how often d was delivered before and then neither acknowledged nor copied:
// its handler took the process, or the connection, with it. Where attempts end in other ways
// that the broker counts too, the topology.Marks have a method Crashes(d D) int. Otherwise it is
// the count of the queue, so always 0 on classic queues. Before RabbitMQ 4.3, a delivery that was
// given back counts as well; since 4.3, a dead letter of another quorum queue brings along the
// deliveries that failed there.
func Crashes[D any](marks any, d D, redelivered bool, headers map[string]any) int {
	if c, ok := marks.(interface{ Crashes(d D) int }); ok {
		return c.Crashes(d)
	}
	return DeliveryCount(redelivered, headers)
}
