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

// ActParams returns the parameters of a filter.
func ActParams(f *store.ActFilter) params.Params {
	return params.Params{
		{Name: "actor", Of: (*params.Text)(&f.Actor), Help: "A part of the actor; case is ignored."},
		{Name: "text", Of: (*params.Text)(&f.Text), Help: "A part of the verb, the subject, or a detail such as the reason; case is ignored."},
		{Name: "since", Of: &f.Since, Help: "A time, or a duration before now such as 2h."},
		{Name: "until", Of: &f.Until, Help: "Exclusive upper limit of the time."},
		{Name: "message", Of: &f.Message, Help: "Acts that discarded, restored, reverted or erased this message."},
	}
}

// ActNames are the parameter names of a filter.
var ActNames = ActParams(new(store.ActFilter)).Names()

// ParseActs reads a filter from URL parameters.
func ParseActs(v url.Values, now time.Time) (f store.ActFilter, err error) {
	r := params.Reader{Values: v, Now: now}
	r.ReadAll(ActParams(&f))
	return f, r.Err
}

// Discard removes messages in state failed from the list.
type Discard struct {
	failed.Selection
	Reason string `json:"reason,omitempty"` // required, except in a dry run
}

// Erase permanently deletes the contents of messages.
type Erase struct {
	failed.Selection
	Reason string `json:"reason,omitempty"` // required, except in a dry run
}

// Done is the result of an act.
type Done struct {
	Messages int64     `json:"messages"`
	DryRun   bool      `json:"dry_run,omitempty"` // the act was not performed
	Left     int64     `json:"left,omitempty"`    // Erase: number of messages that it skips because their replay is running
	Through  failed.ID `json:"through,omitempty"` // dry run: send it as Selection.Through to exclude messages that arrive later

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
	Role  string `json:"role"` // view, operate or admin
}
