package topology

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// RetriesExchange is the topic exchange of retry reports: see RetryReport. The routing key of a report is the work queue.
	RetriesExchange = "reprise.retries"

	// RetriesQueuePrefix begins the name of the queue in which an archive gets retry reports.
	RetriesQueuePrefix = "reprise.retries."
)

// Retries returns the exchange of retry reports.
func Retries() Topology {
	return Topology{Exchanges: []Exchange{{Name: RetriesExchange, Kind: Topic}}}
}

// RetryReportVersion is the RetryReport.Version that this package writes.
const RetryReportVersion = 1

// RetryReport lists messages of a work queue that a worker has sent to a retry: the body, in JSON, of a transient message that an
// announced worker publishes to RetriesExchange. It is for display: a report is not confirmed, and may be lost. Without an archive that
// listens, the broker drops it.
type RetryReport struct {
	Version int     `json:"v"`
	Queue   string  `json:"queue"` // the work queue
	Host    string  `json:"host,omitempty"`
	Retries []Retry `json:"retries"`

	// Missing is the number of retries that were not reported since the report before: there were too many, or the broker
	// did not take them.
	Missing int64 `json:"missing,omitempty"`
}

// Retry is a message that waits for its next attempt.
type Retry struct {
	MessageID string    `json:"id,omitempty"`
	Wait      string    `json:"wait,omitempty"` // queue that it waits in; empty: not known, or several, one after the other
	Attempt   int       `json:"attempt"`        // number of the attempt that failed, from 1
	Failed    time.Time `json:"failed"`         // end of that attempt
	Due       time.Time `json:"due"`            // of the next attempt, by the clock of the worker
	Error     string    `json:"error"`          // of the attempt, at most 4 KiB
}

// Bounds of a RetryReport.
const (
	// MinReportedRetry is the shortest delay of a retry that is reported: a shorter one is over before somebody can look.
	MinReportedRetry = time.Second

	maxReportedRetries = 100
	maxRetryReport     = 64 << 10 // bytes
	maxReadRetryReport = 1 << 20
	maxRetryID         = 255
)

// Full reports whether no further retry should be added to the report.
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
	r.Host = clip(r.Host, maxStatusName)
	r.Retries = slices.Clone(r.Retries)
	for i := range r.Retries {
		x := &r.Retries[i]
		x.Error = strings.ToValidUTF8(cut(x.Error, maxErrorText), "?")
	}
	return encodeJSON(r)
}

// ReadRetryReport returns the report in the body of a message. It reports whether there is one. Retries without an attempt or a time,
// and those with a message id that AMQP cannot carry, are left out.
func ReadRetryReport(body []byte) (r RetryReport, ok bool) {
	if len(body) > maxReadRetryReport || json.Unmarshal(body, &r) != nil || r.Version != RetryReportVersion ||
		r.Queue == "" || len(r.Queue) > maxName || len(r.Retries) > maxReportedRetries || r.Missing < 0 {
		return RetryReport{}, false
	}
	r.Retries = slices.DeleteFunc(r.Retries, func(x Retry) bool {
		return x.Attempt < 1 || x.Due.IsZero() || x.Failed.IsZero() || len(x.MessageID) > maxRetryID || len(x.Wait) > maxName || !utf8.ValidString(x.Wait)
	})
	for i := range r.Retries {
		r.Retries[i].Error = cut(r.Retries[i].Error, maxErrorText)
	}
	return r, true
}

// WaitingIn returns the queue in which a message waits that takes a hop of the strategy's Route, as far as the Route declares it; "" if
// that is not known, or if the message waits in several queues, one after the other.
func (s Strategy) WaitingIn(d Delivery, hop Hop) string {
	switch {
	case hop.Delay <= 0 || hop.Stations > 1:
		return ""
	case hop.Way == Requeue:
		return d.Queue
	case hop.Way == Copy && hop.Exchange == "":
		return hop.RoutingKey
	case hop.Way == Copy:
		return hop.Topology.only(hop.Exchange, hop.RoutingKey)
	}
	t := s.WithDefaults().Route.Topology(d.Queue)
	for _, q := range t.Queues {
		if exchange, found := q.Args["x-dead-letter-exchange"].(string); found && q.Name == d.Queue {
			key, _ := q.Args["x-dead-letter-routing-key"].(string)
			if key == "" {
				key = d.RoutingKey
			}
			return t.only(exchange, key)
		}
	}
	return ""
}

// only returns the queue that gets what is published to an exchange with a key, if it is known, and the only one.
func (t Topology) only(exchange, key string) string {
	if queues, err := t.Reach(exchange, key); err == nil && len(queues) == 1 {
		return queues[0]
	}
	return ""
}
