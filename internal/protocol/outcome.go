package protocol

import (
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// HeaderOutcome is the header with which a replayed message requests a report from its consumer. Its value is a table
// (see [OutcomeRequest]).
const HeaderOutcome = "x-reprise-outcome"

// HeaderDue is the header with the time at which a waiting message is due, in milliseconds since 1970 (int64). A program
// that publishes a copy with a new delay sets it, because the time of the last error plus the expiration of the copy is
// then too early.
const HeaderDue = "x-reprise-due"

// OutcomeQueuePrefix is the prefix of the names of all queues that receive reports. A consumer does not report to other
// queues, so that a publisher cannot make the consumer publish to arbitrary queues.
const OutcomeQueuePrefix = "reprise.outcomes."

// OutcomeRequest requests an [Outcome], a report about a replayed message, from the consumer of the message.
//
// A consumer reports only if [OutcomeRequest.Asks] returns true. Otherwise a consumer would also report on a new message
// to which a handler has copied the headers.
type OutcomeRequest struct {
	To        string // queue to report to
	Replay    string // copied into the report; equal to HeaderReplay
	Key       string // copied into the report; proves that the report answers a request
	Queue     string // work queue, lane or partition to which the message was sent
	MessageID string
}

// Table returns the value of [HeaderOutcome].
func (r OutcomeRequest) Table() topology.Table {
	return topology.Table{"to": r.To, "replay": r.Replay, "key": r.Key, "queue": r.Queue, "message": r.MessageID}
}

// ReadOutcomeRequest returns the request in the headers of a message, and whether the headers have a
// valid request.
func ReadOutcomeRequest(headers topology.Table) (r OutcomeRequest, ok bool) {
	t, _ := headers[HeaderOutcome].(topology.Table)
	if t == nil {
		return r, false
	}
	r.To, _ = t["to"].(string)
	r.Replay, _ = t["replay"].(string)
	r.Key, _ = t["key"].(string)
	r.Queue, _ = t["queue"].(string)
	r.MessageID, _ = t["message"].(string)
	return r, strings.HasPrefix(r.To, OutcomeQueuePrefix) && r.Replay != "" && r.Queue != "" && r.MessageID != ""
}

// Asks reports whether the request is for this message in this queue. The same message may also be in other queues: in its
// failed queue, or in every queue to which an exchange routed it.
func (r OutcomeRequest) Asks(queue, messageID string) bool {
	return r.MessageID == messageID && r.Queue == queue
}

// Results of an [Outcome].
const (
	OutcomeSucceeded = "succeeded" // the handler returned nil; sent before the message is acknowledged
	OutcomeRetrying  = "retrying"  // an attempt failed, and a retry follows; sent before the retry
)

// Outcome is the report of a consumer. The consumer publishes it to the default exchange with the
// routing key [OutcomeRequest.To], as the headers of an empty, persistent, mandatory message.
type Outcome struct {
	Replay  string // OutcomeRequest.Replay
	Key     string // OutcomeRequest.Key
	Queue   string // OutcomeRequest.Queue
	Attempt int    // number of the attempt, from 1
	Result  string // OutcomeSucceeded or OutcomeRetrying
	Error   string // error of the failed attempt; optional, at most 1 KiB
}

// maxOutcomeError limits the error of a report in bytes. The error is only for display.
const maxOutcomeError = 1 << 10

// Table returns the headers of the report.
func (o Outcome) Table() topology.Table {
	t := topology.Table{"replay": o.Replay, "key": o.Key, "queue": o.Queue, "attempt": int64(o.Attempt), "result": o.Result}
	if o.Error != "" {
		t["error"] = strings.ToValidUTF8(o.Error[:min(len(o.Error), maxOutcomeError)], "")
	}
	return t
}

// ReadOutcome returns the report in the headers of a message, and whether the headers have a valid
// report.
func ReadOutcome(headers topology.Table) (o Outcome, ok bool) {
	o.Replay, _ = headers["replay"].(string)
	o.Key, _ = headers["key"].(string)
	o.Queue, _ = headers["queue"].(string)
	o.Attempt = amqpvalue.Count(headers["attempt"])
	o.Result, _ = headers["result"].(string)
	o.Error, _ = headers["error"].(string)
	o.Error = o.Error[:min(len(o.Error), maxOutcomeError)]
	return o, o.Replay != "" && (o.Result == OutcomeSucceeded || o.Result == OutcomeRetrying)
}
