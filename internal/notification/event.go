package notification

import (
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Kind is what has happened. It is also the word for it in configurations and messages.
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
	Test             Kind = "test" // by `reprise notify test`
)

// Kinds are the kinds that a webhook can choose.
func Kinds() []Kind {
	return []Kind{NewGroup, GroupGrows, QueueGrows, ReplayStopped, ReplayDone, BreakerOpen, TimeoutNear, StoreUnavailable, MessagesMissing}
}

// plurals are what a summary calls events of a kind: one, and several.
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

// Event is something that needs attention. Its texts are one line each, without control characters.
type Event struct {
	Kind     Kind      `json:"kind"`
	Time     time.Time `json:"time"`
	Subject  string    `json:"subject"`            // such as group/17, queue/orders, replay/3, store/archive, account/orders
	Title    string    `json:"title"`              // such as "New error group in orders"
	Detail   string    `json:"detail,omitempty"`   // such as the text of the group
	Messages int64     `json:"messages,omitempty"` // that failed, arrived or are missing
	Outcomes *Outcomes `json:"outcomes,omitempty"` // of a replay
	URL      string    `json:"url,omitempty"`      // page of the console; set when the message is made
}

// Outcomes say what became of the messages of a replay.
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

// key is the same for events of which one follows another within the cooldown.
func (e *Event) key() string { return string(e.Kind) + " " + e.Subject }

// page is the path of the console's page for the event.
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

// maxText bounds a text of an event, in bytes.
const maxText = 200

// line returns the beginning of the first line of a text, which may be anything.
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
