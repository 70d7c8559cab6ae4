// Package handler runs handlers that are not written in Go: a program for each message ([Exec]), programs that keep running
// ([Process]) and services ([HTTP]). The input is the message. The exit code, the result or the HTTP status determines the
// outcome.
//
//	outcome   exec                               process         http
//	ack       exit 0                             done            2xx
//	park      exit 65 (EX_DATAERR)               park            3xx, 4xx except those below
//	retry     exit 75 (EX_TEMPFAIL), any other   retry, exit,    408, 425, 429, 5xx,
//	          exit, a signal, a timeout, a       a timeout       a timeout, a network error
//	          missing program
//
// Retries and parking follow the Policy of the worker. A Retry-After header, or retry_after of a process, sets the delay of
// the retry or, if Pause is set, the duration of a pause.
//
// A process first writes the line {"ready":true} to its standard output. Then it receives a line of JSON for each message,
// with an id, the properties, the headers, and either body or, if the body is not UTF-8, body_base64. It answers with a line
// that has the id and the result, in any order:
//
//	{"id":1,"result":"done"}
//	{"id":2,"result":"retry","error":"the bank is closed","retry_after":600}
//	{"id":3,"result":"park","error":"no such customer"}
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
