package api

import (
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// MaxText is how large a body may be for Content.Text to repeat it.
const MaxText = 1 << 20

// Content is a message's body, headers and properties.
type Content struct {
	Body       []byte     `json:"body"`           // base64
	Text       *string    `json:"text,omitempty"` // the body, if it is text and at most MaxText bytes
	Headers    Headers    `json:"headers"`
	Properties Properties `json:"properties"`
}

// Properties are the properties of a message. What is not set is left out.
type Properties struct {
	ContentType     Text      `json:"content_type,omitempty"`
	ContentEncoding Text      `json:"content_encoding,omitempty"`
	CorrelationID   Text      `json:"correlation_id,omitempty"`
	ReplyTo         Text      `json:"reply_to,omitempty"`
	MessageID       Text      `json:"message_id,omitempty"`
	Type            Text      `json:"type,omitempty"`
	AppID           Text      `json:"app_id,omitempty"`
	UserID          Text      `json:"user_id,omitempty"`
	Expiration      Text      `json:"expiration,omitempty"` // milliseconds
	Priority        uint8     `json:"priority,omitempty"`
	Timestamp       time.Time `json:"timestamp,omitzero"`    // whole seconds
	Exchange        Text      `json:"exchange,omitempty"`    // as delivered
	RoutingKey      Text      `json:"routing_key,omitempty"` // as delivered
}

// ContentOf returns a content as it is shown.
func ContentOf(c failed.Content) Content {
	p := c.Properties
	shown := Content{
		Body:    c.Body,
		Headers: Headers(c.Headers),
		Properties: Properties{
			Text(p.ContentType), Text(p.ContentEncoding), Text(p.CorrelationID), Text(p.ReplyTo), Text(p.MessageID),
			Text(p.Type), Text(p.AppID), Text(p.UserID), Text(p.Expiration), p.Priority, p.Timestamp,
			Text(p.Exchange), Text(p.RoutingKey),
		},
	}
	if shown.Body == nil {
		shown.Body = []byte{} // "" and not null
	}
	if len(c.Body) <= MaxText && IsText(c.Body) {
		text := string(c.Body)
		shown.Text = &text
	}
	return shown
}

// Content returns what is to be archived.
func (c Content) Content() failed.Content {
	return failed.Content{Body: c.Body, Headers: topology.Table(c.Headers), Properties: c.Properties.Properties()}
}

// Properties returns them as package failed has them.
func (p Properties) Properties() failed.Properties {
	return failed.Properties{
		ContentType: string(p.ContentType), ContentEncoding: string(p.ContentEncoding), CorrelationID: string(p.CorrelationID),
		ReplyTo: string(p.ReplyTo), MessageID: string(p.MessageID), Type: string(p.Type), AppID: string(p.AppID),
		UserID: string(p.UserID), Expiration: string(p.Expiration), Priority: p.Priority, Timestamp: p.Timestamp,
		Exchange: string(p.Exchange), RoutingKey: string(p.RoutingKey),
	}
}

// IsText reports whether a body is text: UTF-8 without control characters but line
// feeds, carriage returns and tabs.
func IsText(body []byte) bool {
	for len(body) > 0 {
		r, n := utf8.DecodeRune(body)
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' {
			return false
		}
		body = body[n:]
	}
	return true
}

// Edit is what to change of a message. What is left out stays as it is.
type Edit struct {
	Revision   *int        `json:"revision"`       // of the message that was seen: if it is another one now, nothing is changed
	Body       *[]byte     `json:"body,omitempty"` // base64; or:
	Text       *string     `json:"text,omitempty"`
	Headers    *Headers    `json:"headers,omitempty"`    // all of them
	Properties *Properties `json:"properties,omitempty"` // all of them
}

// EditAndReplay edits a message and replays it, in one act.
type EditAndReplay struct {
	Edit
	To *Target `json:"to,omitempty"` // none: the work queue that it failed in
}

// RevisionSummary is a line of a list of edits.
type RevisionSummary struct {
	Number int       `json:"number"` // from 1
	Time   time.Time `json:"time"`
	Actor  string    `json:"actor"`
	Replay int64     `json:"replay,omitempty"` // whose bulk edit it is; 0: a person edited the message alone
}

// Revisions are all edits of a message, oldest first.
type Revisions struct {
	Revisions []RevisionSummary `json:"revisions"`
}

// Revision is an edit, and what it made of the message.
type Revision struct {
	RevisionSummary
	Content
	Redacted bool `json:"redacted,omitempty"` // secrets are left out
}

// RevisionSummaryOf returns a line of a list as it is shown.
func RevisionSummaryOf(e failed.Revision) RevisionSummary {
	return RevisionSummary{Number: e.Number, Time: e.Time, Actor: string(e.Actor), Replay: int64(e.Replay)}
}

// Diff is what edits have changed, as unified diffs; "" where nothing is.
type Diff struct {
	Body       string `json:"body"`
	Headers    string `json:"headers"`
	Properties string `json:"properties"`
}

// Headers are a table with its exact types, in JSON as [tablejson.Encode] writes it.
type Headers topology.Table

// MarshalJSON implements [json.Marshaler].
func (h Headers) MarshalJSON() ([]byte, error) {
	text, err := tablejson.Encode(topology.Table(h))
	return []byte(text), err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (h *Headers) UnmarshalJSON(b []byte) error {
	t, err := tablejson.Decode(string(b))
	*h = Headers(t)
	return err
}
