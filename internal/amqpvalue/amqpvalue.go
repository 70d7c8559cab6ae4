// Package amqpvalue reads values that the broker and other programs write into headers, arguments and names. It imports
// only the standard library.
package amqpvalue

import (
	"math"
	"regexp"
	"strings"
	"time"
)

// Integer converts an integer of any type to an int64, and reports whether v is an integer. Values above [math.MaxInt64]
// become math.MaxInt64. Clients in other languages encode counters in different widths.
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

// MaxCount is the highest result of [Count]. It is one less than [math.MaxInt32], so that the number of the next attempt
// also fits into an int32.
const MaxCount = math.MaxInt32 - 1

// Count reads a counter that another program wrote. It returns 0 if v is negative or not an integer.
func Count(v any) int {
	n, _ := Integer(v)
	return int(min(max(n, 0), MaxCount))
}

// Time reads the time of an event that another program wrote. It returns the zero time, for an unknown time, if v is not a
// time or if RFC 3339 and JSON cannot express its year, for example if the program wrote milliseconds instead of seconds.
func Time(v any) time.Time {
	t, _ := v.(time.Time)
	if y := t.Year(); y < 0 || y > 9999 {
		return time.Time{}
	}
	return t
}

// DeliveryCount returns the number of failed deliveries of a message before this delivery, according to the header
// x-delivery-count of quorum queues (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling). On a first
// delivery, the header can only come from the publisher, so the result is 0. After a failed delivery, a quorum queue
// overwrites the header with its own count. Until then, and always on a classic queue, DeliveryCount returns the published
// header of a redelivered message. A published header can only reduce the number of remaining attempts.
func DeliveryCount(redelivered bool, headers map[string]any) int {
	if !redelivered {
		return 0
	}
	return Count(headers["x-delivery-count"])
}

// IsBrokerHeader reports whether name is a header in which RabbitMQ records earlier deliveries or dead-lettering. Such a
// header belongs to the delivery, not to the message. A copy of the message must not contain it: some RabbitMQ releases
// drop the header, and in others it misleads the detection of dead-letter cycles.
func IsBrokerHeader(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// waitQueue matches the names of the wait queues of topology.Buckets and of topology.Levels. The wait queues of Levels
// lead to a queue or to an exchange.
var waitQueue = regexp.MustCompile(`(?s)\.wait\.[0-9]+-[0-9]+$|\.level\.[0-9]+$|^exchange\..+\.level-[0-9]+$`)

// IsWaitQueue reports whether name has the form of a wait queue of topology.Buckets or topology.Levels. Programs should
// not consume from such a queue.
func IsWaitQueue(name string) bool { return waitQueue.MatchString(name) }

// Part is the name of a lane or of a partition: see the fields Lanes and OrderBy of reprise.WorkerConfig.
type Part struct {
	Queue string // the work queue
	Kind  string // "lane" or "part"
	Count string // the number of lanes or partitions
}

var part = regexp.MustCompile(`(?s)^(.+)\.(lane|part)\.[0-9]+-of-([0-9]+)$`)

// ReadPart reads the name of a lane or of a partition. It returns false for another queue.
func ReadPart(name string) (p Part, ok bool) {
	m := part.FindStringSubmatch(name)
	if m == nil {
		return p, false
	}
	return Part{m[1], m[2], m[3]}, true
}

// WorkQueue returns the work queue of a lane or of a partition. It returns the names of other queues unchanged.
func WorkQueue(name string) string {
	if p, ok := ReadPart(name); ok {
		return p.Queue
	}
	return name
}

// Crashes returns the number of earlier deliveries of d that were neither acknowledged nor copied, because the process
// exited or the connection was lost. If marks has a method Crashes(d D) int, Crashes returns its result. A
// topology.Marks has this method if the broker's count includes other attempts. Otherwise it returns [DeliveryCount],
// which also counts requeued deliveries if the broker is older than RabbitMQ 4.3. Since RabbitMQ 4.3, DeliveryCount of a
// dead-lettered message includes its failed deliveries from other quorum queues.
func Crashes[D any](marks any, d D, redelivered bool, headers map[string]any) int {
	if c, ok := marks.(interface{ Crashes(d D) int }); ok {
		return c.Crashes(d)
	}
	return DeliveryCount(redelivered, headers)
}
