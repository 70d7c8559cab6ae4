package api

import (
	"github.com/reprisemq/reprise/failed"
)

// Acts are a page of the audit log.
type Acts struct {
	Acts []failed.Act `json:"acts"`
	Next string       `json:"next,omitempty"`
}

// Discard drops messages in state failed.
type Discard struct {
	Selection
	Reason string `json:"reason"`
}

// Erase deletes contents of messages for good.
type Erase struct {
	Selection
	Reason string `json:"reason"`
}

// Done is what came of an act.
type Done struct {
	Messages int64 `json:"messages"`
	DryRun   bool  `json:"dry_run,omitempty"` // it was not done
	Left     int64 `json:"left,omitempty"`    // of Erase: selected messages whose replay runs, counted in a dry run
}

// Mute excludes a group from notifications.
type Mute struct {
	Seconds int64 `json:"seconds,omitempty"` // 0: until the group is unmuted
}

// Cancel ends a replay.
type Cancel struct {
	Reason string `json:"reason,omitempty"`
}

// Me is who asks.
type Me struct {
	Actor string `json:"actor"`
	Role  string `json:"role"`
}
