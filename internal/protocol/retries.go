package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

const (
	// RetriesExchange is the topic exchange of retry reports (see RetryReport). The routing key of a report is the work
	// queue.
	RetriesExchange = "reprise.retries"

	// RetriesQueuePrefix is the prefix of the names of the queues in which archives receive retry reports.
	RetriesQueuePrefix = "reprise.retries."
)

// Retries returns the exchange of retry reports.
func Retries() topology.Topology {
	return topology.Topology{Exchanges: []topology.Exchange{{Name: RetriesExchange, Kind: topology.Topic}}}
}

// RetryReportVersion is the RetryReport.Version that this package writes.
const RetryReportVersion = 1

// RetryReport lists messages of a work queue that a worker retries. An announced worker publishes it to RetriesExchange, as
// the JSON body of a transient message. Reports are for display only, are not confirmed, and may be lost. If no archive
// subscribes, the broker drops them.
type RetryReport struct {
	Version int     `json:"v"`
	Queue   string  `json:"queue"` // the work queue
	Host    string  `json:"host,omitempty"`
	Retries []Retry `json:"retries"`

	// Missing is the number of retries since the previous report that were omitted from reports, because there were too
	// many retries or the broker did not accept a report.
	Missing int64 `json:"missing,omitempty"`
}

// Retry is a message that waits for its next attempt.
type Retry struct {
	MessageID string    `json:"id,omitempty"`
	Wait      string    `json:"wait,omitempty"` // wait queue; empty if it is unknown, or if the message waits in several queues in turn.
	Attempt   int       `json:"attempt"`        // number of the failed attempt, from 1.
	Failed    time.Time `json:"failed"`         // end of the failed attempt.
	Due       time.Time `json:"due"`            // time of the next attempt, by the clock of the worker.
	Error     string    `json:"error"`          // error of the failed attempt, at most 4 KiB.
}

// Bounds of a RetryReport.
const (
	// MinReportedRetry is the shortest delay that is reported. Shorter delays would end before an operator sees them.
	MinReportedRetry = time.Second

	maxReportedRetries = 100
	maxRetryReport     = 64 << 10 // bytes
	maxReadRetryReport = 1 << 20
	maxRetryID         = 255
)

// Full reports whether the caller must not add further retries to the report.
func (r RetryReport) Full() bool {
	if len(r.Retries) >= maxReportedRetries {
		return true
	}
	size := 0
	for _, x := range r.Retries {
		size += 256 + len(x.Error)
	}
	return size >= maxRetryReport
}

// Encode returns the JSON of a report.
func (r RetryReport) Encode() ([]byte, error) {
	r.Version = RetryReportVersion
	r.Host = truncateLine(r.Host, maxStatusName)
	r.Retries = slices.Clone(r.Retries)
	for i := range r.Retries {
		x := &r.Retries[i]
		x.Error = brief.Excerpt(strings.ToValidUTF8(x.Error, "?"), maxErrorText)
	}
	return encodeJSON(r)
}

// ReadRetryReport returns the report in the body of a message, and whether the body is a valid report. It removes retries
// without an attempt or a time, and retries with an invalid message ID or wait queue.
func ReadRetryReport(body []byte) (r RetryReport, ok bool) {
	if len(body) > maxReadRetryReport || json.Unmarshal(body, &r) != nil || r.Version != RetryReportVersion ||
		r.Queue == "" || len(r.Queue) > maxName || len(r.Retries) > maxReportedRetries || r.Missing < 0 {
		return RetryReport{}, false
	}
	r.Retries = slices.DeleteFunc(r.Retries, func(x Retry) bool {
		return x.Attempt < 1 || x.Due.IsZero() || x.Failed.IsZero() || len(x.MessageID) > maxRetryID || len(x.Wait) > maxName || !utf8.ValidString(x.Wait)
	})
	for i := range r.Retries {
		r.Retries[i].Error = brief.Excerpt(strings.ToValidUTF8(r.Retries[i].Error, "?"), maxErrorText)
	}
	return r, true
}
