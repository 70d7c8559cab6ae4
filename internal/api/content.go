package api

import (
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// MaxText is the maximum size of a body that Content.Text contains.
const MaxText = 1 << 20

// Content is a message's body, headers and properties.
type Content struct {
	Body       []byte     `json:"body"`           // base64
	Text       *string    `json:"text,omitempty"` // the body, if it is text and at most MaxText bytes
	Headers    Headers    `json:"headers"`
	Properties Properties `json:"properties"`
}

// Properties are the properties of a message. Unset properties are omitted.
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

// ContentOf converts c to its JSON form.
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
		shown.Body = []byte{} // encodes as "" instead of null
	}
	if len(c.Body) <= MaxText && IsText(c.Body) {
		text := string(c.Body)
		shown.Text = &text
	}
	return shown
}

// Content converts c to a [failed.Content].
func (c Content) Content() failed.Content {
	return failed.Content{Body: c.Body, Headers: topology.Table(c.Headers), Properties: c.Properties.Properties()}
}

// Properties converts p to a [failed.Properties].
func (p Properties) Properties() failed.Properties {
	return failed.Properties{
		ContentType: string(p.ContentType), ContentEncoding: string(p.ContentEncoding), CorrelationID: string(p.CorrelationID),
		ReplyTo: string(p.ReplyTo), MessageID: string(p.MessageID), Type: string(p.Type), AppID: string(p.AppID),
		UserID: string(p.UserID), Expiration: string(p.Expiration), Priority: p.Priority, Timestamp: p.Timestamp,
		Exchange: string(p.Exchange), RoutingKey: string(p.RoutingKey),
	}
}

// IsText reports whether a body is text: valid UTF-8 without control characters except line feeds, carriage returns and
// tabs.
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

// Edit specifies changes to a message. Omitted fields do not change.
type Edit struct {
	Revision   *int        `json:"revision"`       // revision that the caller has seen; must be the current revision
	Body       *[]byte     `json:"body,omitempty"` // base64; alternative to Text
	Text       *string     `json:"text,omitempty"`
	Headers    *Headers    `json:"headers,omitempty"`    // replace all headers
	Properties *Properties `json:"properties,omitempty"` // replace all properties
}

// EditAndReplay edits and replays a message in one act.
type EditAndReplay struct {
	Edit
	To *Target `json:"to,omitempty"` // absent: the work queue in which the message failed
}

// RevisionSummary is an entry in a list of edits.
type RevisionSummary struct {
	Number int       `json:"number"` // starts at 1
	Time   time.Time `json:"time"`
	Actor  string    `json:"actor"`
	Replay int64     `json:"replay,omitempty"` // replay whose bulk edit this is; 0: a user edited only this message
}

// Revisions contains all edits of a message, oldest first.
type Revisions struct {
	Revisions []RevisionSummary `json:"revisions"`
}

// Revision is an edit and the resulting message.
type Revision struct {
	RevisionSummary
	Content
	Redacted bool `json:"redacted,omitempty"` // secrets are omitted
}

// RevisionSummaryOf converts an edit to an entry in a list.
func RevisionSummaryOf(e failed.Revision) RevisionSummary {
	return RevisionSummary{Number: e.Number, Time: e.Time, Actor: string(e.Actor), Replay: int64(e.Replay)}
}

// Diff contains the changes to a message as unified diffs. An empty string means that there is no change.
type Diff struct {
	Body       string `json:"body"`
	Headers    string `json:"headers"`
	Properties string `json:"properties"`
}

// Headers is a table whose JSON form preserves the exact types. [tablejson.Encode] describes this form.
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
