package framework

import (
	"regexp"
	"strconv"
)

// rebusError matches the beginning of the details, and each error in them, which begins with its time.
var (
	rebusCount = regexp.MustCompile(`^(\d{1,9}) unhandled exceptions?`)
	rebusError = regexp.MustCompile(`([A-Za-z_][\w.+` + "`" + `]*(?:Exception|Error)\b[^\r\n]*)`)
)

// rebus: https://github.com/rebus-org/Rebus/wiki/Automatic-retries-and-error-handling. The names of the headers are those of
// Rebus.Messages.Headers.
var rebus = framework{
	name: "Rebus",
	read: func(m message) (failure, bool) {
		details := m.text("rbs2-error-details")
		f := failure{queue: m.text("rbs2-source-queue"), text: details}
		if e := rebusError.FindAllString(details, -1); len(e) > 0 {
			f.text, f.stack = e[0], details
		}
		if n := rebusCount.FindStringSubmatch(details); n != nil {
			f.attempts, _ = strconv.Atoi(n[1])
		}
		if n, err := strconv.Atoi(m.text("rbs2-delivery-count")); err == nil {
			f.attempts = max(f.attempts, n)
		}
		return f, f.queue != "" && details != "" || m.text("rbs2-source-queue") != "" && m.text("rbs2-msg-id") != ""
	},
	owns: named("rbs2-error-details", "rbs2-source-queue", "rbs2-delivery-count"),
}
