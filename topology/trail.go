package topology

import (
	"maps"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// Headers that Trail writes.
const (
	HeaderAttempts      = "x-reprise-attempts"       // int64: number of attempts.
	HeaderFirstFailed   = "x-reprise-first-failed"   // timestamp: end of the first failed attempt.
	HeaderErrors        = "x-reprise-errors"         // array of tables: attempt, time, error, host, duration-ms.
	HeaderErrorsDropped = "x-reprise-errors-dropped" // int64: number of errors omitted between the first and the second of the array.
	HeaderExchange      = "x-reprise-exchange"       // longstr: exchange of the first publish.
	HeaderRoutingKey    = "x-reprise-routing-key"    // longstr: routing key of the first publish.
	HeaderQueue         = "x-reprise-queue"          // longstr: work queue in which the message failed.
	HeaderReason        = "x-reprise-reason"         // longstr: reason for parking, in addition to the last error.
)

// HeaderReplay is a header that package failed sets when it replays a message. Its value is a string: the number of the
// replay, a slash and the number of the message in the archive. If the message fails again, the archive finds its earlier
// record by this header.
const HeaderReplay = "x-reprise-replay"

// Bounds of the history on a message.
const (
	maxErrors    = 10      // the first and the last nine
	maxErrorText = 4 << 10 // bytes of each error text
)

// Trail is the default Marks. It counts attempts, and keeps a bounded history of errors on the message, so that a parked
// message shows why it failed.
//
// Trail keeps the first error and the last nine, and writes the number of omitted errors to HeaderErrorsDropped. It
// shortens each error text to 4 KiB by omitting its middle. If the headers exceed Failure.Room, Trail shortens the texts
// further, and finally omits HeaderErrors and HeaderErrorsDropped.
//
// Trail does not limit retries: RetriesLeft is Undecided, so the Policy of the worker decides.
type Trail struct{}

var trailHeaders = map[string]bool{
	HeaderAttempts: true, HeaderFirstFailed: true, HeaderErrors: true, HeaderErrorsDropped: true,
	HeaderExchange: true, HeaderRoutingKey: true, HeaderQueue: true, HeaderReason: true,
}

// Owns reports whether Trail writes the header.
func (Trail) Owns(header string) bool { return trailHeaders[header] }

// Read returns the history in the headers. It ignores values of unexpected types.
func (Trail) Read(d Delivery) History {
	h := History{
		Attempts:      amqpvalue.Count(d.Headers[HeaderAttempts]),
		RetriesLeft:   Undecided,
		ErrorsDropped: amqpvalue.Count(d.Headers[HeaderErrorsDropped]),
	}
	h.FirstFailed = amqpvalue.Time(d.Headers[HeaderFirstFailed])
	h.Queue, _ = d.Headers[HeaderQueue].(string)
	h.Exchange, _ = d.Headers[HeaderExchange].(string)
	h.RoutingKey, _ = d.Headers[HeaderRoutingKey].(string)
	entries, _ := d.Headers[HeaderErrors].([]any)
	for _, e := range entries {
		if t, ok := e.(Table); ok {
			h.Errors = append(h.Errors, readAttempt(t))
		}
	}
	return h
}

// Retry returns a copy of headers in which the failure is added to the trail.
func (t Trail) Retry(headers Table, f Failure) Table { return t.write(headers.Clone(), f) }

// Park returns the same headers as Retry.
func (t Trail) Park(headers Table, f Failure) Table { return t.Retry(headers, f) }

// write adds the failure to the trail in out, and returns out.
func (t Trail) write(out Table, f Failure) Table {
	maps.DeleteFunc(out, func(h string, _ any) bool { return trailHeaders[h] })
	first := f.History.FirstFailed
	if first.IsZero() {
		first = f.Time
	}
	if !f.Uncounted || f.Attempt > 0 {
		out[HeaderAttempts] = int64(f.Attempt)
		out[HeaderFirstFailed] = first
	}
	out[HeaderQueue] = f.Queue
	out[HeaderExchange] = f.Exchange
	out[HeaderRoutingKey] = f.RoutingKey
	if f.Reason != "" {
		out[HeaderReason] = truncate(f.Reason, maxErrorText)
	}

	kept, dropped := f.History.Errors, f.History.ErrorsDropped
	switch {
	case !f.Uncounted:
		kept, dropped = bound(kept, dropped)
	case len(kept) == 0:
		return out
	}
	for limit := maxErrorText; ; limit /= 2 {
		if dropped > 0 {
			out[HeaderErrorsDropped] = int64(dropped)
		}
		entries := writeAttempts(kept, limit)
		if !f.Uncounted {
			entries = append(entries, writeAttempt(f.AttemptError, limit))
		}
		out[HeaderErrors] = entries
		if f.Room <= 0 || out.WireSize() <= f.Room {
			return out
		}
		if limit == 0 {
			// Even with empty texts, the headers do not fit. Omit the list of errors.
			delete(out, HeaderErrors)
			delete(out, HeaderErrorsDropped)
			return out
		}
	}
}

// bound removes errors after the first, so that errs has room for one more error within maxErrors. It returns the remaining
// errors, and dropped plus the number of removed errors.
func bound(errs []AttemptError, dropped int) ([]AttemptError, int) {
	if over := len(errs) + 1 - maxErrors; over > 0 {
		kept := append([]AttemptError{errs[0]}, errs[1+over:]...)
		return kept, dropped + over
	}
	return errs, dropped
}

func writeAttempts(all []AttemptError, limit int) []any {
	entries := make([]any, 0, len(all)+1)
	for _, e := range all {
		entries = append(entries, writeAttempt(e, limit))
	}
	return entries
}

func writeAttempt(e AttemptError, limit int) Table {
	return Table{
		"attempt":     int64(e.Attempt),
		"time":        e.Time,
		"error":       truncate(e.Error, limit),
		"host":        truncate(e.Host, maxName), // host names are not longer, but any publisher can forge the header
		"duration-ms": e.Duration.Milliseconds(),
	}
}

func readAttempt(t Table) AttemptError {
	e := AttemptError{Attempt: amqpvalue.Count(t["attempt"])}
	e.Time = amqpvalue.Time(t["time"])
	e.Error, _ = t["error"].(string)
	e.Host, _ = t["host"].(string)
	if n, ok := amqpvalue.Integer(t["duration-ms"]); ok {
		e.Duration = time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	return e
}
