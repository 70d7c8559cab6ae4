package framework

import (
	"strconv"
	"strings"
	"time"
)

// nserviceBus: https://docs.particular.net/nservicebus/recoverability/#fault-handling-headers. The list of headers that a retry takes off
// is that of ServiceControl (HeaderFilter).
var nserviceBus = framework{
	name: "NServiceBus",
	read: func(m message) (failure, bool) {
		queue := m.text("NServiceBus.FailedQ")
		f := failure{
			queue: queue,
			kind:  m.text("NServiceBus.ExceptionInfo.ExceptionType"), text: m.text("NServiceBus.ExceptionInfo.Message"), stack: m.text("NServiceBus.ExceptionInfo.StackTrace"),
			at: nserviceBusTime(m.text("NServiceBus.TimeOfFailure")),
		}
		immediate, _ := strconv.Atoi(m.text("NServiceBus.FLRetries"))
		delayed, _ := strconv.Atoi(m.text("NServiceBus.Retries"))
		if immediate > 0 || delayed > 0 {
			f.attempts = max(immediate, 0) + max(delayed, 0) + 1 // at least: the immediate retries are those of the last round
		}
		return f, queue != ""
	},
	owns: named("NServiceBus.Retries*", "NServiceBus.FLRetries", "NServiceBus.FailedQ", "NServiceBus.TimeOfFailure", "NServiceBus.ExceptionInfo.*", "ServiceControl.EditOf"),
}

// nserviceBusTime parses a time such as 2026-11-29 10:02:03:456789 Z.
func nserviceBusTime(text string) time.Time {
	if i := strings.LastIndexByte(text, ':'); i > len("2006-01-02 15:04") {
		text = text[:i] + "." + text[i+1:]
	}
	return timeOf(text, "2006-01-02 15:04:05.999999 Z")
}
