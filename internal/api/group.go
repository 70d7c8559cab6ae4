package api

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// Group are the failures of one work queue that have the same fingerprint.
type Group struct {
	ID      int64           `json:"id"`
	Queue   Text            `json:"queue"`
	Text    string          `json:"text"` // error with numbers, ids and addresses blanked, but for codes; "": none is known
	Example string          `json:"example"`
	Counts  failed.Counts   `json:"counts"`
	First   time.Time       `json:"first"`
	Last    time.Time       `json:"last"`
	Hours   []failed.Bucket `json:"hours"`          // 24, from older to newer
	Days    []failed.Bucket `json:"days"`           // 30
	Muted   time.Time       `json:"muted,omitzero"` // until then no notification mentions it
}

// Groups are a page of a list.
type Groups struct {
	Groups []Group `json:"groups"`
	Next   string  `json:"next,omitempty"`
}

// GroupOf returns a group as it is shown.
func GroupOf(g failed.Group) Group {
	return Group{
		ID: int64(g.ID), Queue: Text(g.Queue), Text: g.Text, Example: g.Example, Counts: g.Counts,
		First: g.First, Last: g.Last, Hours: g.Hours, Days: g.Days, Muted: g.Muted,
	}
}

// Forever reports whether a group that is muted until a time is muted until somebody unmutes it.
func Forever(muted time.Time) bool { return !muted.Before(failed.MutedForever) }

// Queue is what the archive has of a work queue.
type Queue struct {
	Queue  Text          `json:"queue"`
	Counts failed.Counts `json:"counts"`
	Purged int64         `json:"purged"`          // removed by retention
	Oldest time.Time     `json:"oldest,omitzero"` // last failure of the oldest message in state failed
	Newest time.Time     `json:"newest,omitzero"`
}

// Queues are all work queues of which there ever was a message.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// QueueOf returns a work queue as it is shown.
func QueueOf(q failed.QueueSummary) Queue {
	return Queue{Queue: Text(q.Queue), Counts: q.Counts, Purged: q.Purged, Oldest: q.Oldest, Newest: q.Newest}
}

// GroupFilter selects the groups that meet all conditions that are set. Values and
// ParseGroupFilter are its only form as parameters of an address.
type GroupFilter struct {
	Queue Text
	State string // at least one message is in it; "": any
	Text  string // a part of the group's text
	Order string // "failed": the most messages in state failed first; "": the latest failure first
}

// byLast is the explicit form of the order "", and anyState that of the state "".
const (
	byLast   = "last"
	byFailed = "failed"
	anyState = "all"
)

// Filter returns it as package failed has it.
func (f GroupFilter) Filter() failed.GroupFilter {
	return failed.GroupFilter{Queue: string(f.Queue), State: failed.State(f.State), Text: f.Text, MostFailed: f.Order == byFailed}
}

// GroupNames are the parameters of a GroupFilter.
var GroupNames = []string{"queue", "state", "text", "order"}

// Values returns the filter as parameters of an address.
func (f GroupFilter) Values() url.Values {
	v := url.Values{"state": {cmp.Or(f.State, anyState)}, "order": {cmp.Or(f.Order, byLast)}}
	params.Write(v, "queue", &f.Queue)
	params.Write(v, "text", &f.Text)
	return v
}

// ParseGroupFilter reads a filter as strictly as failed.ParseFilter does.
func ParseGroupFilter(v url.Values) (f GroupFilter, err error) {
	r := params.Reader{Values: v}
	r.Read("queue", &f.Queue)
	r.Read("state", &f.State)
	r.Read("text", &f.Text)
	r.Read("order", &f.Order)
	if f.State == anyState {
		f.State = ""
	}
	if f.State != "" && !slices.Contains(failed.States(), failed.State(f.State)) {
		r.Keep("state", fmt.Errorf("%.40q is not failed, replaying, replayed, discarded or all", f.State))
	}
	if f.Order == byLast {
		f.Order = ""
	}
	if f.Order != "" && f.Order != byFailed {
		r.Keep("order", fmt.Errorf("%.40q is not failed or last", f.Order))
	}
	return f, r.Err
}
