package api

import (
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

// Publish is a message to publish.
type Publish struct {
	Target
	Body       []byte     `json:"body,omitempty"` // base64; alternative to Text
	Text       *string    `json:"text,omitempty"`
	Headers    Headers    `json:"headers,omitempty"`
	Properties Properties `json:"properties,omitzero"`
}

// Published identifies a message that the broker has confirmed.
type Published struct {
	MessageID Text `json:"message_id"`
}
