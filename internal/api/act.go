package api

import (
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Act is a line of the audit log.
type Act struct {
	ID      int64          `json:"id"`
	Time    time.Time      `json:"time"`
	Actor   string         `json:"actor"`
	Verb    string         `json:"verb"`
	Subject string         `json:"subject,omitempty"` // such as message/17
	Details map[string]any `json:"details,omitempty"`
}

// Acts are a page of the audit log.
type Acts struct {
	Acts []Act  `json:"acts"`
	Next string `json:"next,omitempty"`
}

// ActOf returns an act as it is shown.
func ActOf(a failed.Act) Act {
	return Act{ID: a.ID, Time: a.Time, Actor: string(a.Actor), Verb: string(a.Verb), Subject: a.Subject, Details: a.Details}
}

// Discard drops messages in state failed.
type Discard struct {
	Selection
	Reason string `json:"reason"`
}

// Done is what came of an act.
type Done struct {
	Messages int64 `json:"messages"`
	DryRun   bool  `json:"dry_run,omitempty"` // it was not done
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
