package api

import (
	"net/url"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
)

// Acts is one page of the audit log.
type Acts struct {
	Acts []store.Act `json:"acts"`
	Next string      `json:"next,omitempty"`
}

// ActNames are the parameter names of a store.ActFilter.
var ActNames = []string{"actor", "text", "since", "until", "message"}

func actFields(f *store.ActFilter) []any {
	return []any{(*params.Text)((*string)(&f.Actor)), (*params.Text)(&f.Text), &f.Since, &f.Until, &f.Message}
}

// ActValues returns a filter as URL parameters.
func ActValues(f store.ActFilter) url.Values {
	v := url.Values{}
	for i, field := range actFields(&f) {
		if !params.IsZero(field) {
			params.Write(v, ActNames[i], field)
		}
	}
	return v
}

// ParseActs reads a filter from URL parameters.
func ParseActs(v url.Values, now time.Time) (f store.ActFilter, err error) {
	r := params.Reader{Values: v, Now: now}
	for i, field := range actFields(&f) {
		r.Read(ActNames[i], field)
	}
	return f, r.Err
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

	States store.Counts `json:"states,omitzero"` // Erase: number of messages in each state
}

// Mute excludes a group from notifications.
type Mute struct {
	Seconds int64 `json:"seconds,omitempty"` // 0: until the group is unmuted
}

// Merge moves the messages of groups to a group with a name.
type Merge struct {
	Groups []failed.GroupID `json:"groups"`
	Name   string           `json:"name"`
}

// Regroup moves messages to the groups in which they would arrive now.
type Regroup struct {
	Queue Text `json:"queue,omitzero"` // "": all work queues
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
