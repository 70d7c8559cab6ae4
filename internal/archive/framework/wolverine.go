package framework

import (
	"strconv"
	"time"
)

// wolverine: https://wolverinefx.net/guide/messaging/transports/rabbitmq/deadletterqueues. The names of the headers are those of
// Wolverine.Transports.DeadLetterQueueConstants. In its default mode, Wolverine lets the broker dead-letter the message.
var wolverine = framework{
	name: "Wolverine",
	read: func(m message) (failure, bool) {
		f := failure{
			queue: lastSegment(m.text("original-destination")),
			kind:  m.text("exception-type"), text: m.text("exception-message"), stack: m.text("exception-stack"),
		}
		if ms, err := strconv.ParseInt(m.text("failed-at"), 10, 64); err == nil && ms > 0 && ms < 253402300800000 { // year 9999
			f.at = time.UnixMilli(ms).UTC()
		}
		f.attempts, _ = strconv.Atoi(m.text("attempts"))
		f.attempts = max(f.attempts, 0)
		if f.queue == "" {
			f.queue = m.deadQueue()
		}
		return f, f.kind != "" && m.Headers["exception-message"] != nil && m.Headers["failed-at"] != nil
	},
	owns: named("exception-type", "exception-message", "exception-stack", "failed-at", "original-destination", "original-partition", "original-offset",
		"attempts"), // with its last value, the next failure is final
}
