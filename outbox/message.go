package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/tablejson"
)

// Message is a message to insert. Its zero options mean: leave as soon as the transaction is committed.
type Message struct {
	// Message is the message to publish. If its MessageID is empty, Insert sets it to a random ID; every copy that the
	// relay publishes has this ID. If its Timestamp is zero and NoTimestamp is not set, the message has the time at which
	// it was due.
	reprise.Message

	// At is the time at which the message is due. A time in the past means now. Default: now.
	At time.Time

	// In is the time from the insertion, by the clock of the database, until the message is due. Set At or In, not both.
	In time.Duration

	// Key orders messages: the messages of one key leave one after the other, in the order in which their transactions
	// were committed, and within a transaction in the order of insertion. A message that is not due yet, or cannot be
	// published, holds the later messages of its key. A key has at most 255 bytes. Default: no order.
	Key string

	// Unique is a key that at most one message has until UniqueFor has passed since the message was due. Insert does not
	// insert another message with the key: it sets Duplicate and the MessageID of the first message. Cancel frees the key.
	// Insert waits for other transactions that insert the same key. A key has at most 255 bytes. Default: no key.
	Unique    string
	UniqueFor time.Duration // minimum: 1 ms, if Unique is set

	// Duplicate is set by Insert, to whether another message has the key Unique.
	Duplicate bool
}

// properties is the JSON of the columns with the properties.
type properties struct {
	ContentType     string `json:"content_type,omitempty"`
	ContentEncoding string `json:"content_encoding,omitempty"`
	CorrelationID   string `json:"correlation_id,omitempty"`
	ReplyTo         string `json:"reply_to,omitempty"`
	Type            string `json:"type,omitempty"`
	AppID           string `json:"app_id,omitempty"`
	UserID          string `json:"user_id,omitempty"`
	Priority        uint8  `json:"priority,omitempty"`
	Expiration      int64  `json:"expiration,omitempty"` // ms
	Timestamp       *int64 `json:"timestamp,omitempty"`  // seconds since 1970
	NoTimestamp     bool   `json:"no_timestamp,omitempty"`
	Zero            uint16 `json:"zero,omitempty"`
}

// row is an encoded message, ready to insert.
type row struct {
	of         *Message
	token      string // of the unique key
	properties string
	headers    string
}

// encode calls BeforeInsert, and then completes and checks a message.
func (b *Box) encode(ctx context.Context, m *Message) (row, error) {
	if f := b.cfg.BeforeInsert; f != nil && m != nil {
		m.MessageID = cmp.Or(m.MessageID, rand.Text())
		if err := guard.Call("function BeforeInsert", func() error { return f(ctx, &m.Message) }); err != nil {
			return row{}, fmt.Errorf("outbox: cannot insert messages: %w", err)
		}
	}
	return encodeOnly(m)
}

func encodeOnly(m *Message) (row, error) {
	fail := func(format string, args ...any) (row, error) {
		return row{}, fmt.Errorf("outbox: %w: "+format, append([]any{reprise.ErrInvalidMessage}, args...)...)
	}
	if m == nil {
		return fail("message must not be nil")
	}
	m.Duplicate, m.MessageID = false, cmp.Or(m.MessageID, rand.Text())
	switch {
	case !m.At.IsZero() && m.In != 0:
		return fail("At and In must not both be set")
	case afterYear9999(m.At):
		return fail("At must not be after the year 9999: got %s", m.At)
	case m.In < 0:
		return fail("In must not be negative: got %s", m.In)
	case m.Unique != "" && m.UniqueFor < time.Millisecond:
		return fail("UniqueFor must be at least 1ms: got %s", m.UniqueFor)
	case m.Unique == "" && m.UniqueFor != 0:
		return fail("UniqueFor must be 0 without Unique: got %s", m.UniqueFor)
	case m.Expiration < 0:
		return fail("Expiration must not be negative: got %s", m.Expiration)
	}
	for name, value := range map[string]string{
		"Exchange": m.Exchange, "RoutingKey": m.RoutingKey, "MessageID": m.MessageID, "Key": m.Key, "Unique": m.Unique,
		"ContentType": m.ContentType, "ContentEncoding": m.ContentEncoding, "CorrelationID": m.CorrelationID,
		"ReplyTo": m.ReplyTo, "Type": m.Type, "AppID": m.AppID, "UserID": m.UserID,
	} {
		if len(value) > 255 || !isText(value) {
			return fail("%s must be at most 255 bytes of UTF-8 without NUL: got %.80q", name, value)
		}
	}
	headers, err := tablejson.Encode(m.Headers)
	if err != nil {
		return fail("%w", err)
	}
	p := properties{
		m.ContentType, m.ContentEncoding, m.CorrelationID, m.ReplyTo, m.Type, m.AppID, m.UserID, m.Priority,
		(m.Expiration + time.Millisecond - 1).Milliseconds(), nil, m.NoTimestamp, uint16(m.Zero),
	}
	if !m.Timestamp.IsZero() {
		at := m.Timestamp.Unix()
		p.Timestamp = &at
	}
	text, err := json.Marshal(p)
	return row{of: m, token: rand.Text(), properties: string(text), headers: headers}, err
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// decode restores the message of a row.
func decode(m *reprise.Message, props, headers string, due int64) error {
	var p properties
	if err := json.Unmarshal([]byte(props), &p); err != nil {
		return fmt.Errorf("column properties is not valid: %w", err)
	}
	table, err := tablejson.Decode(headers)
	if err != nil {
		return fmt.Errorf("column headers is not valid: %w", err)
	}
	if len(table) > 0 {
		m.Headers = table
	}
	m.ContentType, m.ContentEncoding, m.CorrelationID, m.ReplyTo = p.ContentType, p.ContentEncoding, p.CorrelationID, p.ReplyTo
	m.Type, m.AppID, m.UserID, m.Priority = p.Type, p.AppID, p.UserID, p.Priority
	m.Expiration = time.Duration(p.Expiration) * time.Millisecond
	m.NoTimestamp, m.Zero = p.NoTimestamp, reprise.PropertySet(p.Zero)
	switch {
	case p.Timestamp != nil:
		m.Timestamp = time.Unix(*p.Timestamp, 0)
	case !p.NoTimestamp:
		m.Timestamp = sqlkit.TimeOf(due).Truncate(time.Second)
	}
	return nil
}

// afterYear9999 reports whether RFC 3339, and therefore JSON, cannot represent a time in UTC.
func afterYear9999(t time.Time) bool { return t.UTC().Year() > 9999 }

// dueArgs returns the earliest time and the delay of a message, in ms. The message is due at the later of the time and the end of
// the delay.
func (m *Message) dueArgs() (at, delay int64) {
	if !m.At.IsZero() {
		at = max(0, m.At.Add(time.Millisecond-1).UnixMilli())
	}
	return at, (m.In + time.Millisecond - 1).Milliseconds()
}

// null returns nil for "".
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
