package notification

import (
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Kind is the kind of an event, as configurations and messages name it.
type Kind string

// The kinds of events.
const (
	NewGroup         Kind = "new-group"
	GroupGrows       Kind = "group-growth"
	QueueGrows       Kind = "queue-growth"
	ReplayStopped    Kind = "replay-stopped"
	ReplayDone       Kind = "replay-done"
	BreakerOpen      Kind = "breaker-open"
	TimeoutNear      Kind = "consumer-timeout"
	StoreUnavailable Kind = "store-unavailable"
	MessagesMissing  Kind = "messages-missing"
	Test             Kind = "test" // sent by `reprise notify test`
)

// Kinds returns the kinds that a webhook can subscribe to.
func Kinds() []Kind {
	return []Kind{NewGroup, GroupGrows, QueueGrows, ReplayStopped, ReplayDone, BreakerOpen, TimeoutNear, StoreUnavailable, MessagesMissing}
}

// plurals contains the singular and the plural of each kind, for summaries.
var plurals = map[Kind][2]string{
	NewGroup:         {"new error group", "new error groups"},
	GroupGrows:       {"growing error group", "growing error groups"},
	QueueGrows:       {"growing failed queue", "growing failed queues"},
	ReplayStopped:    {"replay stopped", "replays stopped"},
	ReplayDone:       {"replay finished", "replays finished"},
	BreakerOpen:      {"open circuit breaker", "open circuit breakers"},
	TimeoutNear:      {"queue near its consumer timeout", "queues near their consumer timeout"},
	StoreUnavailable: {"database unavailable", "databases unavailable"},
	MessagesMissing:  {"account with a discrepancy", "accounts with a discrepancy"},
	Test:             {"test", "tests"},
}

// Event is an occurrence that needs attention. Its strings are one line each, without control characters.
type Event struct {
	Kind Kind      `json:"kind"`
	Time time.Time `json:"time"`

	// Subject identifies the object: group/17, queue/orders, replay/3, store/archive or account/orders.
	Subject string `json:"subject"`

	Title  string `json:"title"`            // for example "New error group in orders"
	Detail string `json:"detail,omitempty"` // for example the error of the group

	// Messages is the number of messages that failed, arrived or are missing.
	Messages int64 `json:"messages,omitempty"`

	// Outcomes is set for replays.
	Outcomes *Outcomes `json:"outcomes,omitempty"`

	// URL is the page of the event in the console. It is set when the message is built.
	URL string `json:"url,omitempty"`
}

// Outcomes counts the messages of a replay by outcome.
type Outcomes struct {
	Selected    int64 `json:"selected"`
	Sent        int64 `json:"sent"`
	Succeeded   int64 `json:"succeeded"`
	FailedAgain int64 `json:"failed_again"`
	Settled     int64 `json:"settled"`
	Retrying    int64 `json:"retrying"`
	Unknown     int64 `json:"unknown"`
	Refused     int64 `json:"refused"`
}

// key identifies equal events. Within the cooldown, only one of several equal events is sent.
func (e *Event) key() string { return string(e.Kind) + " " + e.Subject }

// page returns the path of the console's page for the event.
func (e *Event) page() string {
	subject, name, _ := strings.Cut(e.Subject, "/")
	switch subject {
	case "group", "replay":
		return "/" + subject + "s/" + name
	case "queue":
		return "/groups?queue=" + url.QueryEscape(name)
	case "account":
		return "/ledger"
	}
	return "/"
}

// maxText is the maximum length of a string in an event, in bytes.
const maxText = 200

// line returns the beginning of the first line of an arbitrary string.
func line(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
