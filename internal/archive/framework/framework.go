package framework

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// framework describes the failed messages of a framework.
type framework struct {
	name string

	// read returns what the framework wrote about the failure of a message. It reports false for messages of others.
	read func(message) (failure, bool)

	// owns reports whether the framework added a header when the message failed. A replay takes these headers off.
	owns func(header string) bool

	// restore makes other changes to a message that a replay sends. It returns a *LossError if the consumer would lose the
	// message. The header and nested values of the argument must not be changed. nil: none.
	restore func(*failed.Content) error

	// unsigned reports whether the framework leaves it to the broker to record the failure.
	unsigned bool

	// stringsOnly reports whether consumers fail on headers that are not strings.
	stringsOnly bool
}

// frameworks are tried in this order. Frameworks that others interoperate with come last.
var frameworks = []framework{
	nserviceBus, massTransit, rebus, wolverine, easyNetQ, rascal, watermill, symfony, spring, dramatiq, celery,
}

// message is a message as it was in a failed queue.
type message struct {
	failedQueue string
	failed.Content
}

// text returns a header as a string, or "". Clients write strings as strings, as bytes, or as numbers.
func (m message) text(header string) string { return textOf(m.Headers[header]) }

func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case int8, int16, int32, int64, uint8, uint16, uint32, float32, float64:
		return fmt.Sprint(v)
	}
	return ""
}

// failure is what a framework wrote about the failure of a message. Empty fields are unknown.
type failure struct {
	queue string // the work queue

	// exchange and key are the target of a replay. If both are empty, it is the work queue by its name. A framework that
	// does not record the work queue sets only these.
	exchange, key string

	kind, text, stack string // type and text of the exception, and its stack trace
	attempts          int
	at                time.Time
}

// error returns the text of the error. Its first line identifies the error group.
func (f failure) error() string {
	first := f.text
	if f.kind != "" && !strings.HasPrefix(f.text, f.kind) {
		first = strings.TrimSuffix(f.kind+": "+f.text, ": ")
	}
	if f.stack == "" || strings.HasPrefix(strings.TrimSpace(f.stack), first) { // some stack traces begin with the error
		return cmp.Or(strings.TrimSpace(f.stack), first)
	}
	return first + "\n" + strings.Trim(f.stack, "\r\n")
}

// find returns the framework of a message, and what it wrote. It returns nil for messages that a Reprise worker has parked, and
// for messages of unknown programs.
func find(m message) (*framework, failure) {
	if h := failed.HistoryOf(m.Headers); h.Queue != "" || h.Attempts > 0 || m.Headers == nil && len(m.Body) == 0 {
		return nil, failure{}
	}
	for i := range frameworks {
		if f, ok := frameworks[i].read(m); ok {
			return &frameworks[i], f.plausible(m)
		}
	}
	return nil, failure{}
}

// maxName is the maximum size of names in AMQP.
const maxName = 255

// plausible returns f without a work queue that contradicts the broker: a publisher can write the headers and the body, and so choose
// the destination of a replay, but the broker names the queue that rejected the message.
func (f failure) plausible(m message) failure {
	if dead := m.deadQueue(); dead != "" && f.queue != "" && dead != f.queue && dead != f.queue+".DQ" { // X.DQ is the delay of a queue X of dramatiq
		f.queue, f.exchange, f.key = "", "", ""
	}
	if max(len(f.queue), len(f.exchange), len(f.key)) > maxName {
		f.queue, f.exchange, f.key = "", "", ""
	}
	f.attempts = min(max(f.attempts, 0), amqpvalue.MaxCount)
	return f
}

// SignedBy returns the name of the framework that recorded the failure of a message in it, "Reprise" for a worker of Reprise, or
// "". A task of Celery or dramatiq has no such record before the broker dead-letters it.
func SignedBy(m *reprise.Delivery) string {
	dead := message{m.Queue, failed.ContentOf(m)}
	switch fw, _ := find(dead); {
	case fw != nil && (!fw.unsigned || dead.deadQueue() != ""):
		return fw.name
	case fw == nil && failed.HistoryOf(m.Headers).Attempts > 0:
		return "Reprise"
	}
	return ""
}

// Failed reports whether a message has a trace of a failure, of a framework, of a worker or of the broker.
func Failed(m *reprise.Delivery) bool {
	return SignedBy(m) != "" || failed.RejectedFrom(m.Headers, m.Queue) != "" || m.Headers["x-first-death-queue"] != nil
}

// Take is a variant of failed.Take that also understands the messages of other frameworks. The results are only informative,
// because a publisher can write all of them; the content is unchanged.
func Take(m *reprise.Delivery, origin func(*reprise.Delivery) string) failed.Arrived {
	a := failed.Take(m, origin)
	fw, f := find(message{m.Queue, a.Content})
	if fw == nil {
		return a
	}
	a.Reason = fw.name + ": " + cmp.Or(a.Reason, "moved to queue "+m.Queue)
	a.Error = cmp.Or(f.error(), a.Error)
	a.Attempts = max(a.Attempts, f.attempts)
	if !f.at.IsZero() {
		a.LastFailed = f.at
		if a.FirstFailed.IsZero() || a.FirstFailed.After(f.at) {
			a.FirstFailed = f.at
		}
	}
	switch configured := origin != nil && origin(m) != ""; {
	case f.exchange != "" || f.key != "":
		a.Exchange, a.RoutingKey = f.exchange, f.key
		if !configured {
			a.Queue = cmp.Or(f.queue, a.Queue)
		}
	case f.queue != "" && !configured:
		// The framework sends its own retries to the queue by name.
		a.Queue, a.Exchange, a.RoutingKey = f.queue, "", f.queue
	}
	return a
}

// PlaceOf is a variant of failed.PlaceOf that also understands the messages of other frameworks.
func PlaceOf(m *reprise.Delivery, origin func(*reprise.Delivery) string) failed.Place {
	at := failed.PlaceOf(m, failed.HistoryOf(m.Headers), failed.Deaths(m.Headers), origin)
	if origin != nil && origin(m) != "" {
		return at
	}
	if _, f := find(message{m.Queue, failed.ContentOf(m)}); f.queue != "" && f.queue != at.Queue {
		return failed.Place{Queue: f.queue, Claimed: !failed.Confirms(m.Queue, f.queue)}
	}
	return at
}

// LossError is returned for a message that its consumer would lose or damage after a replay.
type LossError struct {
	Framework string
	Why       string
}

func (e *LossError) Error() string { return e.Framework + ": " + e.Why }

// Restored is the content that a replay sends.
type Restored struct {
	failed.Content

	// StringsOnly reports whether the consumer fails on headers that are not strings, so that the replay must not request an
	// outcome report.
	StringsOnly bool
}

// Restore returns the content that a replay sends for a message with the given current content, which may be edited. Messages of
// Reprise workers and of unknown programs do not change. The result shares unchanged values with current. It returns a
// *LossError if the consumer would lose the message.
func Restore(original failed.Content, failedQueue string, current failed.Content) (Restored, error) {
	fw, _ := find(message{failedQueue, original})
	if fw == nil {
		return Restored{Content: current}, nil
	}
	current.Headers = maps.Clone(current.Headers)
	maps.DeleteFunc(current.Headers, func(name string, v any) bool {
		_, text := v.(string)
		return fw.owns(name) || fw.stringsOnly && !text
	})
	if fw.restore != nil {
		if err := fw.restore(&current); err != nil {
			return Restored{}, &LossError{fw.name, err.Error()}
		}
	}
	return Restored{current, fw.stringsOnly}, nil
}

// named returns a function that reports whether a header has one of the names or, if a name ends with "*", one of the prefixes.
func named(names ...string) func(string) bool {
	return func(header string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			prefix, cut := strings.CutSuffix(name, "*")
			return header == name || cut && strings.HasPrefix(header, prefix)
		})
	}
}

// deadQueue returns the queue from which the broker dead-lettered the message for a reason other than expiry, or "".
func (m message) deadQueue() string { return failed.RejectedFrom(m.Headers, m.failedQueue) }

// lastSegment returns the part of a URI after the last slash, without a query.
func lastSegment(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	return uri[strings.LastIndexByte(uri, '/')+1:]
}

// timeOf parses a time in one of the layouts, or returns the zero time. Times without a zone are in UTC.
func timeOf(text string, layouts ...string) time.Time {
	for _, layout := range append(layouts, time.RFC3339Nano) {
		if t, err := time.Parse(layout, text); err == nil && t.Year() > 1970 && t.Year() <= 9999 {
			return t.UTC()
		}
	}
	return time.Time{}
}

// lastLine returns the last line that is neither empty nor indented.
func lastLine(text string) string {
	lines := strings.Split(text, "\n")
	for _, line := range slices.Backward(lines) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(text)
}
