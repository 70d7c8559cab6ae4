package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/params"
)

// Waiting is a message that waits for a retry.
type Waiting struct {
	ID        int64     `json:"id"`
	Queue     Text      `json:"queue"`
	Wait      Text      `json:"wait,omitempty"` // wait queue; "": unknown, or several
	MessageID Text      `json:"message_id,omitempty"`
	Host      Text      `json:"host,omitempty"`
	Attempt   int       `json:"attempt"` // number of the failed attempt
	Failed    time.Time `json:"failed"`
	Due       time.Time `json:"due"`
	Error     Text      `json:"error"`
	Group     string    `json:"group"`
}

// WaitingOf converts a waiting message to its JSON form.
func WaitingOf(w store.Waiting) Waiting {
	return Waiting{
		ID: int64(w.ID), Queue: Text(w.Queue), Wait: Text(w.Wait), MessageID: Text(w.MessageID), Host: Text(w.Host),
		Attempt: w.Attempt, Failed: w.Failed, Due: w.Due, Error: Text(w.Error), Group: w.Group,
	}
}

// WaitingPage is a page of waiting messages.
type WaitingPage struct {
	Messages []Waiting `json:"messages"`
	Next     string    `json:"next,omitempty"`
}

// WaitingCounts summarizes waiting messages.
type WaitingCounts struct {
	Messages int64     `json:"messages"`
	Due      int64     `json:"due"`           // messages whose retry is due
	Attempts int       `json:"attempts"`      // highest number of attempts
	Next     time.Time `json:"next,omitzero"` // earliest due time in the future
}

// WaitingQueue counts the waiting messages of a work queue.
type WaitingQueue struct {
	Queue  Text          `json:"queue"`
	Counts WaitingCounts `json:"counts"`
}

// WaitingGroup counts the waiting messages that have the same work queue and the same error fingerprint.
type WaitingGroup struct {
	Group   string        `json:"group"`
	Failed  int64         `json:"failed_group,omitempty"` // ID of the corresponding group of archived messages
	Queue   Text          `json:"queue"`
	Text    string        `json:"text"`
	Example Text          `json:"example"`
	Counts  WaitingCounts `json:"counts"`
}

// WaitingSummary summarizes the waiting messages by queue and group.
type WaitingSummary struct {
	Counts  WaitingCounts  `json:"counts"`
	Queues  []WaitingQueue `json:"queues"`
	Groups  []WaitingGroup `json:"groups"`
	Missing int64          `json:"missing,omitempty"` // number of retries in the last day that workers did not report
	Silent  []Text         `json:"silent,omitempty"`  // queues whose announced workers retry messages but do not report retries
	Problem string         `json:"problem,omitempty"` // why the list may be outdated

	Blocked []WaitingBlocked `json:"blocked,omitempty"` // wait queues from which no message returns
}

// WaitingBlocked is a wait queue whose first message never expires.
type WaitingBlocked struct {
	Queue     Text `json:"queue"`
	WaitQueue Text `json:"wait_queue"`
	Messages  int  `json:"messages"`
	Cause     Text `json:"cause"`
	Remedy    Text `json:"remedy"` // a command
}

// WaitingFilter selects waiting messages.
type WaitingFilter struct {
	IDs     []int64   `json:"ids,omitempty"`
	Queue   Text      `json:"queue,omitempty"`
	Group   string    `json:"group,omitempty"`   // a prefix is sufficient
	Attempt int       `json:"attempt,omitempty"` // minimum
	Before  time.Time `json:"before,omitzero"`   // due before this time
	Error   Text      `json:"error,omitempty"`   // substring of the error
}

// Params returns the parameters of the filter.
func (f *WaitingFilter) Params() params.Params {
	return params.Params{
		{Name: "id", Of: &f.IDs, Help: "IDs of waiting messages, one parameter for each."},
		{Name: "queue", Of: &f.Queue, Help: "The work queue."},
		{Name: "group", Of: &f.Group, Help: "Key of a group, or its first characters."},
		{Name: "attempt", Of: &f.Attempt, Help: "Minimum number of attempts."},
		{Name: "before", Of: &f.Before, Help: "Due before this time, or within a duration such as 10m."},
		{Name: "error", Of: &f.Error, Help: "A substring of the error."},
	}
}

// WaitingNames are the parameter names of a WaitingFilter.
var WaitingNames = new(WaitingFilter).Params().Names()

// Filter converts f to a [failed.WaitingFilter].
func (f WaitingFilter) Filter() (out store.WaitingFilter) {
	out = store.WaitingFilter{Queue: string(f.Queue), Group: f.Group, Attempt: f.Attempt, Before: f.Before, Error: string(f.Error)}
	for _, id := range f.IDs {
		out.IDs = append(out.IDs, store.WaitingID(id))
	}
	return out
}

// Values returns the filter as URL parameters.
func (f WaitingFilter) Values() url.Values { return f.Params().Values() }

// ParseWaitingFilter parses a filter. The parameter "before" may also be a duration from now, such as 10m.
func ParseWaitingFilter(v url.Values, now time.Time) (f WaitingFilter, err error) {
	if d, err := time.ParseDuration(v.Get("before")); err == nil && len(v["before"]) == 1 {
		v = maps.Clone(v)
		v.Set("before", now.Add(d).Format(time.RFC3339Nano))
	}
	r := params.Reader{Values: v, Now: now}
	r.ReadAll(f.Params())
	if r.Err == nil {
		r.Err = f.Filter().Validate()
	}
	return f, r.Err
}

// WaitingAct specifies an act on waiting messages.
type WaitingAct struct {
	Filter WaitingFilter `json:"filter"`
	All    bool          `json:"all,omitempty"`     // required if the filter selects all messages
	AtMost int64         `json:"at_most,omitempty"` // refuse the act if it selects more messages; 0: no limit
	Delay  Duration      `json:"delay,omitempty"`   // only for postpone
	Reason string        `json:"reason,omitempty"`
}

// Act converts a to a [waiting.Act].
func (a WaitingAct) Act(do waiting.Do) waiting.Act {
	return waiting.Act{Do: do, Filter: a.Filter.Filter(), All: a.All, AtMost: a.AtMost, Delay: time.Duration(a.Delay), Reason: a.Reason}
}

// WaitingDone is the result of an act. Selected is the sum of the other numbers.
type WaitingDone struct {
	Selected int64            `json:"selected"`
	Done     int64            `json:"done"`
	Gone     int64            `json:"gone"`   // already due, or changed by another act
	Unsure   int64            `json:"unsure"` // result unknown, because the connection was lost
	Refused  []WaitingRefusal `json:"refused"`
	DryRun   bool             `json:"dry_run,omitempty"` // the act was not performed
}

// WaitingRefusal is a reason why messages were not changed, and the number of these messages.
type WaitingRefusal struct {
	Why      string `json:"why"`
	Messages int64  `json:"messages"`
}

// WaitingDoneOf converts a result to its JSON form.
func WaitingDoneOf(r waiting.Result) WaitingDone {
	d := WaitingDone{Selected: r.Selected, Done: r.Done, Gone: r.Gone, Unsure: r.Unsure, Refused: []WaitingRefusal{}}
	for _, x := range r.Refused {
		d.Refused = append(d.Refused, WaitingRefusal(x))
	}
	return d
}

// Waiting returns a page of waiting messages, earliest due time first.
func (c *Client) Waiting(ctx context.Context, f WaitingFilter, p Page) (WaitingPage, error) {
	return get[WaitingPage](ctx, c, "waiting", p.in(f.Values()))
}

// WaitingSummary summarizes waiting messages by queue and group.
func (c *Client) WaitingSummary(ctx context.Context, f WaitingFilter) (WaitingSummary, error) {
	return get[WaitingSummary](ctx, c, "waiting/summary", f.Values())
}

// ActOnWaiting acts on waiting messages. A dry run only counts the messages.
func (c *Client) ActOnWaiting(ctx context.Context, do waiting.Do, a WaitingAct, dryRun bool) (WaitingDone, error) {
	return call[WaitingDone](ctx, c, http.MethodPost, fmt.Sprintf("waiting/%s", do), dry(dryRun), a)
}
