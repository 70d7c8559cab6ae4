package api

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// PurgeQueue removes messages from a queue of the broker.
type PurgeQueue struct {
	Queue  Text   `json:"queue"`
	Limit  int    `json:"limit,omitempty"` // maximum number of messages to remove, oldest first; required except in a dry run
	Reason string `json:"reason,omitempty"`
	Drop   bool   `json:"drop,omitempty"` // do not archive the messages; otherwise they are archived as discarded
}

// Peek is a look at the first messages of a queue of the broker.
type Peek struct {
	Queue Text `json:"queue"`
	Limit int  `json:"limit,omitempty"` // maximum number of messages, from 1 to 32. Default: 1

	// Counts permits a look that counts as a failed delivery of the messages.
	Counts bool `json:"counts,omitempty"`
}

// Peeks is the result of a Peek.
type Peeks struct {
	Cost     string   `json:"cost"`   // what the look changes
	Counts   bool     `json:"counts"` // it counts, or may count, as a failed delivery
	Ready    int      `json:"ready"`  // ready messages in the queue
	DryRun   bool     `json:"dry_run,omitempty"`
	Messages []Peeked `json:"messages"` // empty in a dry run
}

// Peeked is a message in a queue.
type Peeked struct {
	Redelivered bool `json:"redelivered"` // before this look
	Content
}

// PeekedOf converts a message, without the secrets that the rules select.
func PeekedOf(m *reprise.Delivery, secrets []failed.Rule) Peeked {
	return Peeked{m.Redelivered, ContentOf(failed.ContentOf(m).Redact(secrets))}
}

// Publish is a message to publish. With one of the last five fields, it goes to the outbox, and leaves from there.
type Publish struct {
	Target
	Body       []byte     `json:"body,omitempty"` // base64; alternative to Text
	Text       *string    `json:"text,omitempty"`
	Headers    Headers    `json:"headers,omitempty"`
	Properties Properties `json:"properties,omitzero"`

	At        time.Time `json:"at,omitzero"`          // time at which the message leaves
	In        Duration  `json:"in,omitempty"`         // the same, from now; alternative to At
	OrderKey  Text      `json:"order_key,omitempty"`  // messages with the same key leave one after the other, in the order of the requests
	Unique    Text      `json:"unique,omitempty"`     // key that at most one message has, until UniqueFor has passed since it was due
	UniqueFor Duration  `json:"unique_for,omitempty"` // required with Unique
}

// Later reports whether the message goes to the outbox.
func (p Publish) Later() bool {
	return !p.At.IsZero() || p.In != 0 || p.OrderKey != "" || p.Unique != "" || p.UniqueFor != 0
}

// Published identifies a message that the broker has confirmed, or that is in the outbox.
type Published struct {
	MessageID Text      `json:"message_id"`
	Due       time.Time `json:"due,omitzero"`        // time at which the message leaves the outbox
	Duplicate bool      `json:"duplicate,omitempty"` // another message has the key Unique; the other fields are those of this message
}
