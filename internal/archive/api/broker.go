package api

// PurgeQueue removes messages from a queue of the broker.
type PurgeQueue struct {
	Queue  Text   `json:"queue"`
	Limit  int    `json:"limit,omitempty"` // maximum number of messages to remove, oldest first; required except in a dry run
	Reason string `json:"reason,omitempty"`
	Drop   bool   `json:"drop,omitempty"` // do not archive the messages; otherwise they are archived as discarded
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
