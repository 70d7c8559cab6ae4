// Package handler runs handlers that are not written in Go: programs ([Exec])
// and services ([HTTP]). The message is the input, the exit code or the status
// is the outcome.
//
//	outcome   exec                                      http
//	ack       exit 0                                    2xx
//	park      exit 65 (EX_DATAERR)                      3xx, 4xx but those below
//	retry     exit 75 (EX_TEMPFAIL), any other exit,    408, 425, 429, 5xx,
//	          a signal, a timeout, a missing program    a timeout, a network error
//
// Retries and parking follow the Policy of the worker. A Retry-After header
// names the delay of a retry itself, and of a pause if HTTPConfig says so.
//
// # What a handler is told
//
// The body is the standard input, or the body of a POST. All else is told by
// name, in environment variables and in HTTP headers. What a message does not
// have is absent, not empty.
//
//	REPRISE_QUEUE             Reprise-Queue             the work queue
//	REPRISE_EXCHANGE          Reprise-Exchange          where it was first published; absent for the default exchange
//	REPRISE_ROUTING_KEY       Reprise-Routing-Key
//	REPRISE_ATTEMPT           Reprise-Attempt           number of this attempt, from 1
//	REPRISE_FIRST_FAILED      Reprise-First-Failed      when the first attempt failed (RFC 3339)
//	REPRISE_LAST_ERROR        Reprise-Last-Error        why the attempt before failed, cut at 1 KiB
//	REPRISE_REDELIVERED       Reprise-Redelivered       "true": a crash or a lost connection may have cut an earlier delivery short
//	REPRISE_MESSAGE_ID        Reprise-Message-Id        the same on every attempt, if the publisher has set it; see docs/cli.md
//	REPRISE_CORRELATION_ID    Reprise-Correlation-Id
//	REPRISE_REPLY_TO          Reprise-Reply-To
//	REPRISE_TYPE              Reprise-Type
//	REPRISE_APP_ID            Reprise-App-Id
//	REPRISE_USER_ID           Reprise-User-Id
//	REPRISE_PRIORITY          Reprise-Priority          absent for 0
//	REPRISE_TIMESTAMP         Reprise-Timestamp         RFC 3339
//	REPRISE_EXPIRATION        Reprise-Expiration        milliseconds
//	REPRISE_CONTENT_TYPE      Content-Type
//	REPRISE_CONTENT_ENCODING  Content-Encoding
//	REPRISE_HEADER_<NAME>     Reprise-Header-<Name>     each header of the message
//	REPRISE_OMITTED           Reprise-Omitted           names of what could not be passed, see below
//
// Header values are told as text: strings and bytes as they are, numbers in
// decimal, true and false, times in RFC 3339, nothing as an empty text, arrays
// and tables as JSON. In a variable's name, letters become upper case and
// whatever is no letter or digit of ASCII becomes _.
//
// Names and values of HTTP headers are percent-encoded where they have
// anything else than printable ASCII, a % or blanks at their ends; names also
// where they have a character that HTTP does not allow in them. So no message
// can add a header of its own choosing, and each value can be decoded again.
//
// # What cannot be passed
//
// A variable cannot hold a NUL, its size is limited by the system, and servers
// limit the size of headers. A value with a NUL (variables only), one that is
// too long, and those past a limit for all together are left out; so is the
// second of two headers that make one variable. The handler is told their names
// and the log gets a warning. The message is not parked for it: most handlers
// need the body alone, and one that needs more can look at the names and say so.
//
//	          one value   all together
//	exec      64 KiB      256 KiB
//	http       4 KiB       12 KiB
package handler

import (
	"log/slog"
	"strings"

	"github.com/reprisemq/reprise"
)

// maxErrorText is how much of what a handler says goes into the error that is
// recorded on the message.
const maxErrorText = 4 << 10

// logger returns the log of one attempt.
func logger(l *slog.Logger, m *reprise.Message) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	l = l.With("queue", m.Queue)
	if m.MessageID != "" {
		l = l.With("message_id", m.MessageID)
	}
	return l.With("attempt", m.Attempt)
}

// clean makes bytes of unknown origin a text, without blanks around it.
func clean(b []byte) string { return strings.TrimSpace(valid(b)) }

func valid(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\uFFFD")
}
