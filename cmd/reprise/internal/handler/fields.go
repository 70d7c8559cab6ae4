package handler

import (
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
)

// field is a property or header that a handler receives with a message.
type field struct {
	name   string // name of a property, such as "Routing-Key", or of a header
	value  string
	header bool // a header of the message, not a property
	json   bool // value is a number or a boolean in JSON
}

// maxLastError is the maximum size, in bytes, of the field Last-Error.
const maxLastError = 1 << 10

// fields returns the properties of m, the most important first, followed by its headers.
func fields(m *reprise.Delivery) []field {
	all := properties(m)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		all = append(all, field{name: name, value: Text(m.Headers[name]), header: true})
	}
	return all
}

// properties returns the properties of m, the most important first.
func properties(m *reprise.Delivery) []field {
	all := make([]field, 0, 20)
	add := func(name, value string) {
		if value != "" {
			all = append(all, field{name: name, value: value})
		}
	}
	addJSON := func(name, value string) { all = append(all, field{name: name, value: value, json: true}) }
	add("Queue", m.Queue)
	add("Exchange", m.Exchange)
	add("Routing-Key", m.RoutingKey)
	if m.Attempt > 0 {
		addJSON("Attempt", strconv.Itoa(m.Attempt))
	}
	add("Message-Id", m.MessageID)
	add("Correlation-Id", m.CorrelationID)
	add("Reply-To", m.ReplyTo)
	add("Type", m.Type)
	add("App-Id", m.AppID)
	add("User-Id", m.UserID)
	if m.Priority > 0 || m.Zero.Has(reprise.PropertyPriority) {
		addJSON("Priority", strconv.Itoa(int(m.Priority)))
	}
	add("Timestamp", stamp(m.Timestamp))
	if m.Expiration > 0 {
		addJSON("Expiration", strconv.FormatInt(m.Expiration.Milliseconds(), 10))
	}
	if m.Redelivered {
		addJSON("Redelivered", "true")
	}
	add("Content-Type", m.ContentType)
	add("Content-Encoding", m.ContentEncoding)
	add("First-Failed", stamp(m.FirstFailed))
	if n := len(m.Errors); n > 0 {
		add("Last-Error", cut(m.Errors[n-1].Error, maxLastError))
	}
	return all
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// cut shortens s to at most n bytes, without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// budget decides which fields are passed and which are omitted.
type budget struct {
	one, all int // maximum size of one value, and remaining size for all fields
	omitted  []string
}

// take reserves space for a name and its value. It reports whether they fit.
func (b *budget) take(name, value string) bool {
	size := len(name) + len(value)
	if len(value) > b.one || size > b.all {
		b.omit(name)
		return false
	}
	b.all -= size
	return true
}

// Limits of the list of omitted names. They are needed because the sender of a message chooses the header names.
const (
	maxOmitted     = 16
	maxOmittedName = 64
)

func (b *budget) omit(name string) {
	switch {
	case len(b.omitted) < maxOmitted:
		b.omitted = append(b.omitted, cut(name, maxOmittedName))
	case len(b.omitted) == maxOmitted:
		b.omitted = append(b.omitted, "...")
	}
}
