package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
)

// WaitingPage is a page of waiting messages.
type WaitingPage struct {
	Messages []store.Waiting `json:"messages"`
	Next     string          `json:"next,omitempty"`
}

// WaitingSummary summarizes the waiting messages by queue and group.
type WaitingSummary struct {
	Counts  store.WaitingCounts  `json:"counts"`
	Queues  []store.WaitingQueue `json:"queues"`
	Groups  []store.WaitingGroup `json:"groups"`
	Missing int64                `json:"missing,omitempty"` // number of retries in the last day that workers did not report
	Silent  []Text               `json:"silent,omitempty"`  // queues whose announced workers retry messages but do not report retries
	Keyed   []Text               `json:"keyed,omitempty"`   // queues with blocked keys, whose waiting messages are not listed
	Problem string               `json:"problem,omitempty"` // why the list may be outdated

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

// WaitingDone is the result of an act.
type WaitingDone struct {
	waiting.Result
	DryRun bool `json:"dry_run,omitempty"` // the act was not performed
}

// Waiting returns a page of waiting messages, earliest due time first.
func (c *Client) Waiting(ctx context.Context, f store.WaitingFilter, p Page) (WaitingPage, error) {
	return get[WaitingPage](ctx, c, "waiting", p.in(f.Values()))
}

// WaitingSummary summarizes waiting messages by queue and group.
func (c *Client) WaitingSummary(ctx context.Context, f store.WaitingFilter) (WaitingSummary, error) {
	return get[WaitingSummary](ctx, c, "waiting/summary", f.Values())
}

// ActOnWaiting acts on waiting messages. A dry run only counts the messages.
func (c *Client) ActOnWaiting(ctx context.Context, a waiting.Act, dryRun bool) (WaitingDone, error) {
	return call[WaitingDone](ctx, c, http.MethodPost, fmt.Sprintf("waiting/%s", a.Do), dry(dryRun), a)
}
