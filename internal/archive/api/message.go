package api

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// Summary is an entry in a list of messages.
type Summary struct {
	ID          int64     `json:"id"`
	Group       int64     `json:"group"`
	State       string    `json:"state"` // failed, replaying, replayed or discarded
	Queue       Text      `json:"queue"`
	FailedQueue Text      `json:"failed_queue"`
	Archived    time.Time `json:"archived"`
	Exchange    Text      `json:"exchange,omitempty"`
	RoutingKey  Text      `json:"routing_key,omitempty"`
	Attempts    int       `json:"attempts"`
	Reason      string    `json:"reason,omitempty"`
	Error       string    `json:"error"` // truncated to 1 KiB in a list
	FirstFailed time.Time `json:"first_failed,omitzero"`
	LastFailed  time.Time `json:"last_failed"`
	IsEdited    bool      `json:"is_edited"`
	ReplayedBy  int64     `json:"replayed_by,omitempty"`
	Outcome     string    `json:"outcome,omitempty"`     // outcome of the message in the replay replayed_by
	WhyUnknown  string    `json:"why_unknown,omitempty"` // reason if the outcome is unknown
	Back        int64     `json:"back,omitempty"`        // replay that sent the message before it failed again
	BackOf      int64     `json:"back_of,omitempty"`     // ID of the message in that replay
	Discarded   string    `json:"discarded,omitempty"`
	Refused     string    `json:"refused,omitempty"` // why the latest replay could not send the message
	MessageID   Text      `json:"message_id,omitempty"`
	Size        int       `json:"size"`             // size of the original body in bytes
	Detail      string    `json:"detail,omitempty"` // in a list: values of the configured columns, or the beginning of the body if all messages of the page are in one group
}

// Messages is one page of a list of messages.
type Messages struct {
	Messages []Summary `json:"messages"`
	Next     string    `json:"next,omitempty"` // value of the parameter "after" for the next page; absent on the last page
}

// Message is a message with all details.
type Message struct {
	Summary
	Errors        []AttemptError `json:"errors"` // oldest first
	ErrorsDropped int            `json:"errors_dropped,omitempty"`
	Original      Content        `json:"original"`
	Edited        *Content       `json:"edited,omitempty"`
	Revision      int            `json:"revision"`           // number of the latest edit; 0: not edited
	Redacted      bool           `json:"redacted,omitempty"` // secrets are omitted
	Erased        bool           `json:"erased,omitempty"`   // the content and the errors were permanently deleted
}

// AttemptError describes a failed attempt.
type AttemptError struct {
	Attempt    int       `json:"attempt"`
	Time       time.Time `json:"time,omitzero"`
	Error      string    `json:"error"`
	Host       string    `json:"host,omitempty"`
	DurationMS int64     `json:"duration_ms"`
}

// SummaryOf converts a summary to its JSON form.
func SummaryOf(s failed.Summary) Summary {
	return Summary{
		ID: int64(s.ID), Group: int64(s.Group), State: string(s.State),
		Queue: Text(s.Queue), FailedQueue: Text(s.FailedQueue), Archived: s.Archived,
		Exchange: Text(s.Exchange), RoutingKey: Text(s.RoutingKey),
		Attempts: s.Attempts, Reason: s.Reason, Error: s.Error, FirstFailed: s.FirstFailed, LastFailed: s.LastFailed,
		IsEdited: s.Edited, ReplayedBy: int64(s.ReplayedBy), Outcome: string(s.Outcome), WhyUnknown: s.WhyUnknown, Back: int64(s.Back), BackOf: int64(s.BackOf),
		Discarded: s.Discarded, Refused: s.Refused, MessageID: Text(s.MessageID), Size: s.Size,
	}
}

// MessageOf converts a message to its JSON form.
func MessageOf(m *failed.Message) Message {
	shown := Message{
		Summary: Summary{
			ID: int64(m.ID), Group: int64(m.Group), State: string(m.State),
			Queue: Text(m.Queue), FailedQueue: Text(m.FailedQueue), Archived: m.Archived,
			Exchange: Text(m.Exchange), RoutingKey: Text(m.RoutingKey),
			Attempts: m.Attempts, Reason: m.Reason, Error: m.Error, FirstFailed: m.FirstFailed, LastFailed: m.LastFailed,
			IsEdited: m.Edited != nil, ReplayedBy: int64(m.ReplayedBy), Outcome: string(m.Outcome), WhyUnknown: m.WhyUnknown, Back: int64(m.Back), BackOf: int64(m.BackOf),
			Discarded: m.Discarded, Refused: m.Refused, MessageID: Text(m.Properties.MessageID), Size: len(m.Body),
		},
		Errors:        attemptsOf(m.Errors),
		ErrorsDropped: m.ErrorsDropped,
		Original:      ContentOf(m.Content),
		Revision:      m.Revision,
		Erased:        m.Erased,
	}
	if m.Edited != nil {
		edited := ContentOf(*m.Edited)
		shown.Edited = &edited
	}
	return shown
}

func attemptsOf(attempts []reprise.AttemptError) []AttemptError {
	shown := make([]AttemptError, len(attempts))
	for i, a := range attempts {
		shown[i] = AttemptError{a.Attempt, a.Time, a.Error, a.Host, a.Duration.Milliseconds()}
	}
	return shown
}
