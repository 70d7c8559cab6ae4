package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/tablejson"
)

// line is an exported message. Headers, properties and attempts have the same encoding as in the database.
type line struct {
	Archive       string          `json:"archive"`
	ID            int64           `json:"id"`
	State         failed.State    `json:"state"`
	Queue         rawString       `json:"queue"`
	FailedQueue   rawString       `json:"failed_queue"`
	Archived      time.Time       `json:"archived"` // for information only: an import sets a new time
	Exchange      rawString       `json:"exchange"`
	RoutingKey    rawString       `json:"routing_key"`
	Attempts      int             `json:"attempts"`
	Error         rawString       `json:"error"`
	Reason        rawString       `json:"reason,omitempty"`
	Errors        json.RawMessage `json:"errors"`
	ErrorsDropped int             `json:"errors_dropped,omitempty"`
	FirstFailed   time.Time       `json:"first_failed"`
	LastFailed    time.Time       `json:"last_failed"`
	Discarded     rawString       `json:"discarded,omitempty"`
	lineContent
	Edited    int            `json:"edited,omitempty"` // number of the revision to send, from 1; 0: the original
	Revisions []lineRevision `json:"revisions,omitempty"`

	message failed.Message
}

type lineContent struct {
	Headers    json.RawMessage `json:"headers"`
	Properties json.RawMessage `json:"properties"`
	Body       *string         `json:"body,omitempty"`   // if the body is UTF-8
	Base64     []byte          `json:"base64,omitempty"` // if the body is not UTF-8

	content failed.Content
}

type lineRevision struct {
	Time  time.Time `json:"time"`
	Actor rawString `json:"actor"`
	lineContent
}

// rawString is a string that may contain invalid UTF-8.
type rawString string

func (s rawString) MarshalJSON() ([]byte, error) { return tablejson.Any(s).MarshalJSON() }

func (s *rawString) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("{")) {
		var encoded struct{ String []byte }
		err := json.Unmarshal(b, &encoded)
		*s = rawString(encoded.String)
		return err
	}
	return json.Unmarshal(b, (*string)(s))
}

func lineOf(m *failed.Message) (*line, error) {
	c, err := lineContentOf(m.Content)
	if err != nil {
		return nil, err
	}
	attempts, err := encodeAttempts(m.Errors)
	if err != nil {
		return nil, err
	}
	return &line{
		State: m.State, Queue: rawString(m.Queue), FailedQueue: rawString(m.FailedQueue), Archived: m.Archived,
		Exchange: rawString(m.Exchange), RoutingKey: rawString(m.RoutingKey), Attempts: m.Attempts,
		Error: rawString(m.Error), Reason: rawString(m.Reason), Errors: json.RawMessage(attempts), ErrorsDropped: m.ErrorsDropped,
		FirstFailed: m.FirstFailed, LastFailed: m.LastFailed, Discarded: rawString(m.Discarded), lineContent: c,
	}, nil
}

func lineContentOf(c failed.Content) (l lineContent, err error) {
	headers, properties, err := encodeContent(c)
	l.Headers, l.Properties = json.RawMessage(headers), json.RawMessage(properties)
	if utf8.Valid(c.Body) {
		body := string(c.Body)
		l.Body = &body
	} else {
		l.Base64 = c.Body
	}
	return l, err
}

// parseLine parses a line. It returns nil for a blank line.
func parseLine(b []byte) (*line, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, nil
	}
	l := new(line)
	if err := json.Unmarshal(b, l); err != nil {
		return nil, failed.Invalid("%w", err)
	}
	if l.Archive == "" || len(l.Archive) > 40 || l.ID <= 0 || l.FailedQueue == "" && l.Queue == "" {
		return nil, failed.Invalid("line is not an exported message (archive, id and queue are required)")
	}
	if _, ok := codes[l.State]; !ok {
		return nil, failed.Invalid("state %s not found (use failed, replaying, replayed or discarded)", brief.Quoted(string(l.State)))
	}
	if l.State == failed.Replaying {
		l.State = failed.Failed
	}
	if l.State == failed.Discarded && l.Discarded == "" {
		l.Discarded = "imported without a reason"
	}
	if l.Edited < 0 || l.Edited > len(l.Revisions) {
		return nil, failed.Invalid("edited must be between 0 and %[2]d: got %[1]d", l.Edited, len(l.Revisions))
	}
	if err := l.read(); err != nil {
		return nil, err
	}
	for i := range l.Revisions {
		if err := l.Revisions[i].read(); err != nil {
			return nil, fmt.Errorf("cannot decode revision %d: %w", i+1, err)
		}
	}
	m := failed.Message{
		State: l.State, Queue: string(l.Queue), FailedQueue: string(l.FailedQueue),
		Exchange: string(l.Exchange), RoutingKey: string(l.RoutingKey), Attempts: l.Attempts,
		Error: string(l.Error), Reason: string(l.Reason), ErrorsDropped: l.ErrorsDropped,
		FirstFailed: l.FirstFailed, LastFailed: l.LastFailed, Content: l.content,
	}
	if l.State == failed.Discarded {
		m.Discarded = string(l.Discarded)
	}
	if len(l.Errors) > 0 {
		var err error
		if m.Errors, err = decodeAttempts(string(l.Errors)); err != nil {
			return nil, err
		}
	}
	l.message = m
	return l, nil
}

func (l *lineContent) read() (err error) {
	body := slices.Clone(l.Base64)
	if l.Body != nil {
		body = []byte(*l.Body)
	}
	orEmpty := func(b json.RawMessage) string {
		if len(b) == 0 {
			return "{}"
		}
		return string(b)
	}
	l.content, err = contentFrom(body, orEmpty(l.Headers), orEmpty(l.Properties))
	return err
}
