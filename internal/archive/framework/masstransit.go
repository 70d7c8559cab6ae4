package framework

import (
	"strconv"
	"strings"
)

// massTransit: https://masstransit.io/documentation/concepts/exceptions. The names of the headers are those of MassTransit.MessageHeaders.
// A queue X_error receives faults, and a queue X_skipped receives messages without a consumer.
var massTransit = framework{
	name: "MassTransit",
	read: func(m message) (failure, bool) {
		reason := m.text("MT-Reason")
		f := failure{
			queue: lastSegment(m.text("MT-Fault-InputAddress")),
			kind:  m.text("MT-Fault-ExceptionType"), text: m.text("MT-Fault-Message"), stack: m.text("MT-Fault-StackTrace"),
			at: timeOf(m.text("MT-Fault-Timestamp"), "2006-01-02T15:04:05.999999999"),
		}
		if work, found := strings.CutSuffix(m.failedQueue, "_error"); found && f.queue == "" {
			f.queue = work
		}
		if work, found := strings.CutSuffix(m.failedQueue, "_skipped"); found && f.queue == "" {
			f.queue = work
		}
		if reason == "dead-letter" && f.text == "" {
			f.text = "no consumer for the message in queue " + f.queue
		}
		if n, err := strconv.Atoi(m.text("MT-Fault-RetryCount")); err == nil && n >= 0 {
			f.attempts = n + 1
		}
		return f, reason == "fault" || reason == "dead-letter" || f.kind != "" && m.text("MT-Fault-InputAddress") != ""
	},
	owns: named("MT-Reason", "MT-Fault-ExceptionType", "MT-Fault-InputAddress", "MT-Fault-Message", "MT-Fault-MessageType", "MT-Fault-ConsumerType",
		"MT-Fault-Timestamp", "MT-Fault-StackTrace", "MT-Fault-RetryCount", "MT-Fault-RedeliveryCount", "MT-Host-*",
		"MT-Redelivery-Count"), // with its last value, the next failure is final
}
