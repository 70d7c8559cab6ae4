package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/params"
)

// Waiting is a message that waits for a retry.
type Waiting struct {
	ID        int64     `json:"id"`
	Queue     Text      `json:"queue"`
	Wait      Text      `json:"wait,omitempty"` // queue that it waits in; "": not known, or several
	MessageID Text      `json:"message_id,omitempty"`
	Host      Text      `json:"host,omitempty"`
	Attempt   int       `json:"attempt"` // that failed
	Failed    time.Time `json:"failed"`
	Due       time.Time `json:"due"`
	Error     Text      `json:"error"`
	Group     string    `json:"group"`
}

// WaitingOf returns a message as it is shown.
func WaitingOf(w failed.Waiting) Waiting {
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

// WaitingCounts are numbers of waiting messages.
type WaitingCounts struct {
	Messages int64     `json:"messages"`
	Due      int64     `json:"due"`           // of them: those whose time has come
	Attempts int       `json:"attempts"`      // the largest
	Next     time.Time `json:"next,omitzero"` // the earliest time that has not come
}

// WaitingQueue are the waiting messages of a work queue.
type WaitingQueue struct {
	Queue  Text          `json:"queue"`
	Counts WaitingCounts `json:"counts"`
}

// WaitingGroup are the waiting messages of a work queue with the same fingerprint.
type WaitingGroup struct {
	Group   string        `json:"group"`
	Failed  int64         `json:"failed_group,omitempty"` // the group of such failures
	Queue   Text          `json:"queue"`
	Text    string        `json:"text"`
	Example Text          `json:"example"`
	Counts  WaitingCounts `json:"counts"`
}

// WaitingSummary are the waiting messages by queue and group.
type WaitingSummary struct {
	Counts  WaitingCounts  `json:"counts"`
	Queues  []WaitingQueue `json:"queues"`
	Groups  []WaitingGroup `json:"groups"`
	Missing int64          `json:"missing,omitempty"` // retries that were left out within a day
	Silent  []Text         `json:"silent,omitempty"`  // queues with announced workers that have retried messages and report none
	Problem string         `json:"problem,omitempty"` // why the list may be out of date
}

// WaitingFilter selects waiting messages.
type WaitingFilter struct {
	IDs     []int64   `json:"ids,omitempty"`
	Queue   Text      `json:"queue,omitempty"`
	Group   string    `json:"group,omitempty"`   // the first characters will do
	Attempt int       `json:"attempt,omitempty"` // at least
	Before  time.Time `json:"before,omitzero"`   // due before
	Error   Text      `json:"error,omitempty"`   // a part of the error
}

// WaitingNames are the parameters of a WaitingFilter.
var WaitingNames = []string{"id", "queue", "group", "attempt", "before", "error"}

// fields yields the parameters of f in the order of WaitingNames.
func (f *WaitingFilter) fields() []any {
	return []any{&f.IDs, &f.Queue, &f.Group, &f.Attempt, &f.Before, &f.Error}
}

// Filter returns the filter as package failed has it.
func (f WaitingFilter) Filter() (out failed.WaitingFilter) {
	out = failed.WaitingFilter{Queue: string(f.Queue), Group: f.Group, Attempt: f.Attempt, Before: f.Before, Error: string(f.Error)}
	for _, id := range f.IDs {
		out.IDs = append(out.IDs, failed.WaitingID(id))
	}
	return out
}

// Values returns the filter as parameters of an address.
func (f WaitingFilter) Values() url.Values {
	v := url.Values{}
	for i, field := range f.fields() {
		params.Write(v, WaitingNames[i], field)
	}
	return v
}

// ParseWaitingFilter reads a filter. Before may also be a time from now, such as 10m.
func ParseWaitingFilter(v url.Values, now time.Time) (f WaitingFilter, err error) {
	if d, err := time.ParseDuration(v.Get("before")); err == nil && len(v["before"]) == 1 {
		v = maps.Clone(v)
		v.Set("before", now.Add(d).Format(time.RFC3339Nano))
	}
	r := params.Reader{Values: v, Now: now}
	for i, field := range f.fields() {
		r.Read(WaitingNames[i], field)
	}
	if r.Err == nil {
		r.Err = f.Filter().Validate()
	}
	return f, r.Err
}

// WaitingAct is an act on waiting messages.
type WaitingAct struct {
	Filter WaitingFilter `json:"filter"`
	All    bool          `json:"all,omitempty"`     // required if the filter selects all
	AtMost int64         `json:"at_most,omitempty"` // refuse the act if it selects more; 0: no bound
	Delay  Duration      `json:"delay,omitempty"`   // of postpone
	Reason string        `json:"reason,omitempty"`
}

// Act returns the act as package failed has it.
func (a WaitingAct) Act(do failed.WaitingDo) failed.WaitingAct {
	return failed.WaitingAct{Do: do, Filter: a.Filter.Filter(), All: a.All, AtMost: a.AtMost, Delay: time.Duration(a.Delay), Reason: a.Reason}
}

// WaitingDone is what came of an act. Selected is the sum of the others.
type WaitingDone struct {
	Selected int64            `json:"selected"`
	Done     int64            `json:"done"`
	Gone     int64            `json:"gone"`   // due meanwhile, or acted on by somebody else
	Unsure   int64            `json:"unsure"` // the connection was lost: done, or as before, or, if copied, both
	Refused  []WaitingRefusal `json:"refused"`
	DryRun   bool             `json:"dry_run,omitempty"` // it was not done
}

// WaitingRefusal is why messages were left as they were.
type WaitingRefusal struct {
	Why      string `json:"why"`
	Messages int64  `json:"messages"`
}

// WaitingDoneOf returns a result as it is shown.
func WaitingDoneOf(r failed.WaitingResult) WaitingDone {
	d := WaitingDone{Selected: r.Selected, Done: r.Done, Gone: r.Gone, Unsure: r.Unsure, Refused: []WaitingRefusal{}}
	for _, x := range r.Refused {
		d.Refused = append(d.Refused, WaitingRefusal(x))
	}
	return d
}

// Waiting returns a page of waiting messages, the next due first.
func (c *Client) Waiting(ctx context.Context, f WaitingFilter, p Page) (WaitingPage, error) {
	return get[WaitingPage](ctx, c, "waiting", p.in(f.Values()))
}

// WaitingSummary returns waiting messages by queue and group.
func (c *Client) WaitingSummary(ctx context.Context, f WaitingFilter) (WaitingSummary, error) {
	return get[WaitingSummary](ctx, c, "waiting/summary", f.Values())
}

// ActOnWaiting acts on waiting messages, or, in a dry run, counts them.
func (c *Client) ActOnWaiting(ctx context.Context, do failed.WaitingDo, a WaitingAct, dryRun bool) (WaitingDone, error) {
	return call[WaitingDone](ctx, c, http.MethodPost, fmt.Sprintf("waiting/%s", do), dry(dryRun), a)
}
