package api

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
)

// Groups is one page of a list of groups.
type Groups struct {
	Groups []store.Group `json:"groups"`
	Next   string        `json:"next,omitempty"`
}

// Forever reports whether a group with the given value of Muted stays muted until a user unmutes it.
func Forever(muted time.Time) bool { return !muted.Before(store.MutedForever) }

// Queues contains all work queues that have, or had, archived messages.
type Queues struct {
	Queues []store.QueueSummary `json:"queues"`
}

// GroupFilter selects the groups that meet all set conditions. Values and ParseGroupFilter convert it to and from URL
// parameters.
type GroupFilter struct {
	Queue Text
	State string // state of at least one message; "": any
	Text  string // substring of the group's text
	Order string // "failed": most messages in state failed first; "": latest failure first
}

// byLast is the explicit form of the order "", and anyState is the explicit form of the state "".
const (
	byLast   = "last"
	byFailed = "failed"
	anyState = "all"
)

// Filter converts f to a [store.GroupFilter].
func (f GroupFilter) Filter() store.GroupFilter {
	return store.GroupFilter{Queue: f.Queue, State: failed.State(f.State), Text: f.Text, MostFailed: f.Order == byFailed}
}

// Params returns the parameters of the filter.
func (f *GroupFilter) Params() params.Params {
	return params.Params{
		{Name: "queue", Of: &f.Queue, Help: "The work queue."},
		{Name: "state", Of: &f.State, Help: "The group has a message in this state: failed, replaying, replayed or discarded. Default: all (any state)."},
		{Name: "text", Of: &f.Text, Help: "A substring of the group's error."},
		{Name: "order", Of: &f.Order, Help: "failed (most messages in state failed first) or last (latest failure first). Default: last."},
	}
}

// GroupNames contains the parameter names of a GroupFilter.
var GroupNames = new(GroupFilter).Params().Names()

// Values returns the filter as URL parameters.
func (f GroupFilter) Values() url.Values {
	f.State, f.Order = cmp.Or(f.State, anyState), cmp.Or(f.Order, byLast)
	return f.Params().Values()
}

// ParseGroupFilter parses a filter as strictly as failed.ParseFilter.
func ParseGroupFilter(v url.Values) (f GroupFilter, err error) {
	r := params.Reader{Values: v}
	r.ReadAll(f.Params())
	if f.State == anyState {
		f.State = ""
	}
	if f.State != "" && !slices.Contains(failed.States(), failed.State(f.State)) {
		r.Keep("state", fmt.Errorf("%s is not failed, replaying, replayed, discarded or all", brief.Quoted(string(f.State))))
	}
	if f.Order == byLast {
		f.Order = ""
	}
	if f.Order != "" && f.Order != byFailed {
		r.Keep("order", fmt.Errorf("%s is not failed or last", brief.Quoted(string(f.Order))))
	}
	return f, r.Err
}
