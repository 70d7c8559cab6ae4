package api

import (
	"context"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/internal/archive/ledger"
)

// Ledger compares the received messages of each account with the messages that are processed, queued, failed or removed.
// Package ledger documents the equation and its limits.
type Ledger struct {
	Kept     bool      `json:"kept"`     // whether a ledger exists
	Balanced bool      `json:"balanced"` // no account has a discrepancy
	Accounts []Account `json:"accounts"` // sorted by name
}

// Account is a work queue with its wait queues and its failed queue. In is the sum of all numbers from Done to Missing.
type Account struct {
	Account     Text         `json:"account"`
	State       string       `json:"state"` // opening, balanced, differs or unknown
	Since       time.Time    `json:"since,omitzero"`
	At          time.Time    `json:"at"` // time of the sample
	In          int64        `json:"in"`
	Done        int64        `json:"done"`
	Ready       int64        `json:"ready"`
	Unacked     int64        `json:"unacked"`
	Waiting     int64        `json:"waiting"`
	Failed      int64        `json:"failed"`
	Replayed    int64        `json:"replayed"`
	Discarded   int64        `json:"discarded"`
	Removed     int64        `json:"removed"`
	Missing     int64        `json:"missing"` // negative: too many messages
	Slack       int64        `json:"slack"`   // maximum error of Missing
	Differences []Difference `json:"differences"`
	Note        Text         `json:"note,omitempty"`
}

// Difference is the number of messages that became missing in a period.
type Difference struct {
	Messages int64     `json:"messages"`       // negative: too many messages
	Since    time.Time `json:"since,omitzero"` // absent: before the first sample
	Until    time.Time `json:"until"`
	Text     string    `json:"text"` // description in words
	Reasons  []Text    `json:"reasons"`
}

// LedgerOf converts a report to its JSON form.
func LedgerOf(r *ledger.Report) Ledger {
	a := Ledger{Kept: true, Balanced: r.Balanced(), Accounts: make([]Account, len(r.Accounts))}
	for i, l := range r.Accounts {
		line := Account{
			Account: Text(l.Name), State: string(l.State), Since: l.Since, At: l.At,
			In: l.In, Done: l.Done, Ready: l.Ready, Unacked: l.Unacked, Waiting: l.Waiting, Failed: l.Failed,
			Replayed: l.Replayed, Discarded: l.Discarded, Removed: l.Removed, Missing: l.Missing, Slack: l.Slack,
			Differences: make([]Difference, len(l.Differences)), Note: Text(l.Note),
		}
		for j, d := range l.Differences {
			reasons := make([]Text, len(d.Reasons))
			for k, r := range d.Reasons {
				reasons[k] = Text(r)
			}
			line.Differences[j] = Difference{d.Messages, d.Since, d.Until, d.String(), reasons}
		}
		a.Accounts[i] = line
	}
	return a
}

// Accept resets an account after its discrepancies have been investigated.
type Accept struct {
	Account Text   `json:"account"`
	Reason  string `json:"reason"`
}

// Ledger returns the report of the ledger.
func (c *Client) Ledger(ctx context.Context) (Ledger, error) {
	return get[Ledger](ctx, c, "ledger", nil)
}

// Accept resets an account of the ledger and returns the new report.
func (c *Client) Accept(ctx context.Context, a Accept) (Ledger, error) {
	return call[Ledger](ctx, c, http.MethodPost, "ledger/accept", nil, a)
}
