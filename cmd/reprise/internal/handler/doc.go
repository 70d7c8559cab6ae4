// Package handler runs handlers that are not written in Go: programs ([Exec]) and services ([HTTP]). The input is the
// message. The exit code or the HTTP status determines the outcome.
//
//	outcome   exec                                      http
//	ack       exit 0                                    2xx
//	park      exit 65 (EX_DATAERR)                      3xx, 4xx except those below
//	retry     exit 75 (EX_TEMPFAIL), any other exit,    408, 425, 429, 5xx,
//	          a signal, a timeout, a missing program    a timeout, a network error
//
// Retries and parking follow the Policy of the worker. A Retry-After header sets the delay of the retry or, if
// HTTPConfig.Pause is set, the duration of a pause.
//
// The body of the message is the standard input of the program, or the body of the POST request. Properties and headers
// of the message become environment variables (REPRISE_…) or HTTP headers (Reprise-…): docs/configuration.md lists
// them. Properties without a value are not passed. Arrays and tables are encoded as JSON. Names and values of HTTP
// headers are percent-encoded, so that a message cannot inject a header.
//
// A value is omitted if it exceeds 64 KiB (HTTP: 4 KiB), or if the total would exceed 256 KiB (HTTP: 12 KiB). For a
// program, a value is also omitted if it contains a NUL, or if its header maps to the same variable as an earlier
// header. The handler receives the names of omitted values, and a warning is logged. An omitted value does not park the
// message, because most handlers need only the body.
//
// The package imports the worker library and package topology. `reprise up` uses this package.
package handler

import (
	"log/slog"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
)

// maxErrorText is the maximum size, in bytes, of the handler's output in an error.
const maxErrorText = 4 << 10

// logger returns the logger of one attempt, with the attributes of the message.
func logger(l *slog.Logger, m *reprise.Delivery) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	l = l.With("queue", m.Queue)
	if m.MessageID != "" {
		l = l.With("message_id", m.MessageID)
	}
	return l.With("attempt", m.Attempt)
}

// clean returns an output as plain text without surrounding space.
func clean(b []byte) string { return strings.TrimSpace(cause.Plain(b)) }
