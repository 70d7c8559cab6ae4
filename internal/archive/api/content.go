package api

import (
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
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

// Properties are the properties of a message. Properties that are not set are omitted. A property can be present with an
// empty value, and priority 0 differs from no priority.
type Properties struct {
	ContentType     *Text  `json:"content_type,omitempty"`
	ContentEncoding *Text  `json:"content_encoding,omitempty"`
	CorrelationID   *Text  `json:"correlation_id,omitempty"`
	ReplyTo         *Text  `json:"reply_to,omitempty"`
	MessageID       *Text  `json:"message_id,omitempty"`
	Type            *Text  `json:"type,omitempty"`
	AppID           *Text  `json:"app_id,omitempty"`
	UserID          Text   `json:"user_id,omitempty"`
	Expiration      Text   `json:"expiration,omitempty"` // milliseconds
	Priority        *uint8 `json:"priority,omitempty"`
	Timestamp       Stamp  `json:"timestamp,omitzero"`
	Exchange        Text   `json:"exchange,omitempty"`    // as delivered
	RoutingKey      Text   `json:"routing_key,omitempty"` // as delivered
}

// written returns the value of a property, or nil if the property is not set.
func written[T comparable](value T, zero bool) *T {
	var none T
	if value == none && !zero {
		return nil
	}
	return &value
}

// read returns the value of a property, and adds flag to zeros if the property is present with an empty value.
func read[T comparable](value *T, flag reprise.PropertySet, zeros *reprise.PropertySet) (v T) {
	if value == nil {
		return v
	}
	if *value == v {
		*zeros |= flag
	}
	return *value
}

// PropertiesOf converts p to its JSON form.
func PropertiesOf(p failed.Properties) Properties {
	text := func(value string, flag reprise.PropertySet) *Text { return written(Text(value), p.Zero.Has(flag)) }
	return Properties{
		ContentType: text(p.ContentType, reprise.PropertyContentType), ContentEncoding: text(p.ContentEncoding, reprise.PropertyContentEncoding),
		CorrelationID: text(p.CorrelationID, reprise.PropertyCorrelationID), ReplyTo: text(p.ReplyTo, reprise.PropertyReplyTo),
		MessageID: text(p.MessageID, reprise.PropertyMessageID), Type: text(p.Type, reprise.PropertyType), AppID: text(p.AppID, reprise.PropertyAppID),
		UserID: Text(p.UserID), Expiration: Text(p.Expiration), Priority: written(p.Priority, p.Zero.Has(reprise.PropertyPriority)),
		Timestamp: Stamp{p.Timestamp}, Exchange: Text(p.Exchange), RoutingKey: Text(p.RoutingKey),
	}
}

// ContentOf converts c to its JSON form.
func ContentOf(c failed.Content) Content {
	shown := Content{Body: c.Body, Headers: Headers(c.Headers), Properties: PropertiesOf(c.Properties)}
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
	var zeros reprise.PropertySet
	text := func(value *Text, flag reprise.PropertySet) string { return string(read(value, flag, &zeros)) }
	converted := failed.Properties{
		ContentType: text(p.ContentType, reprise.PropertyContentType), ContentEncoding: text(p.ContentEncoding, reprise.PropertyContentEncoding),
		CorrelationID: text(p.CorrelationID, reprise.PropertyCorrelationID), ReplyTo: text(p.ReplyTo, reprise.PropertyReplyTo),
		MessageID: text(p.MessageID, reprise.PropertyMessageID), Type: text(p.Type, reprise.PropertyType), AppID: text(p.AppID, reprise.PropertyAppID),
		UserID: string(p.UserID), Expiration: string(p.Expiration), Priority: read(p.Priority, reprise.PropertyPriority, &zeros),
		Timestamp: p.Timestamp.Time, Exchange: string(p.Exchange), RoutingKey: string(p.RoutingKey),
	}
	converted.Zero = zeros
	return converted
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
	To          *Target `json:"to,omitempty"`            // absent: the work queue in which the message failed
	ByQueueName bool    `json:"by_queue_name,omitempty"` // see Plan
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
func RevisionSummaryOf(e store.Revision) RevisionSummary {
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
