package api

import (
	"github.com/reprisemq/reprise/failed"
)

// Acts is one page of the audit log.
type Acts struct {
	Acts []failed.Act `json:"acts"`
	Next string       `json:"next,omitempty"`
}

// Discard removes messages in state failed from the list.
type Discard struct {
	Selection
	Reason string `json:"reason"`
}

// Erase permanently deletes the contents of messages.
type Erase struct {
	Selection
	Reason string `json:"reason"`
}

// Done is the result of an act.
type Done struct {
	Messages int64 `json:"messages"`
	DryRun   bool  `json:"dry_run,omitempty"` // the act was not performed
	Left     int64 `json:"left,omitempty"`    // Erase: number of messages that it skips because their replay is running
	Through  int64 `json:"through,omitempty"` // dry run: send it as Selection.Through to exclude messages that arrive later

	States *failed.Counts `json:"states,omitempty"` // Erase: number of messages in each state
}

// Mute excludes a group from notifications.
type Mute struct {
	Seconds int64 `json:"seconds,omitempty"` // 0: until the group is unmuted
}

// Cancel specifies why a replay is cancelled.
type Cancel struct {
	Reason string `json:"reason,omitempty"`
}

// Me is the identity and role of the caller.
type Me struct {
	Actor string `json:"actor"`
	Role  string `json:"role"`
}
