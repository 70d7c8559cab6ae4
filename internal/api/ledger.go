package api

import (
	"context"
	"net/http"
	"time"

	"github.com/reprisemq/reprise/ledger"
)

// Ledger says whether all messages that came in are somewhere: package ledger has the
// equation, and what it can prove.
type Ledger struct {
	Kept     bool      `json:"kept"`     // there is one
	Balanced bool      `json:"balanced"` // no account differs
	Accounts []Account `json:"accounts"` // by name
}

// Account is a work queue with its wait queues and its failed queue. In
// is the sum of all numbers from Done to Missing.
type Account struct {
	Account     Text         `json:"account"`
	State       string       `json:"state"` // opening, balanced, differs or unknown
	Since       time.Time    `json:"since,omitzero"`
	At          time.Time    `json:"at"` // of the last sample
	In          int64        `json:"in"`
	Done        int64        `json:"done"`
	Ready       int64        `json:"ready"`
	Unacked     int64        `json:"unacked"`
	Waiting     int64        `json:"waiting"`
	Failed      int64        `json:"failed"`
	Replayed    int64        `json:"replayed"`
	Discarded   int64        `json:"discarded"`
	Removed     int64        `json:"removed"`
	Missing     int64        `json:"missing"` // negative: too many
	Slack       int64        `json:"slack"`   // by how much Missing can be wrong
	Differences []Difference `json:"differences"`
	Note        Text         `json:"note,omitempty"`
}

// Difference is what came to be missing in a window.
type Difference struct {
	Messages int64     `json:"messages"`       // negative: too many
	Since    time.Time `json:"since,omitzero"` // left out: older than all samples
	Until    time.Time `json:"until"`
	Text     string    `json:"text"` // all of it in words
	Reasons  []Text    `json:"reasons"`
}

// LedgerOf returns a report as it is shown.
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

// Accept begins an account anew, whose differences have been looked into.
type Accept struct {
	Account Text   `json:"account"`
	Reason  string `json:"reason"`
}

// Ledger returns what the ledger says.
func (c *Client) Ledger(ctx context.Context) (Ledger, error) {
	return get[Ledger](ctx, c, "ledger", nil)
}

// Accept begins an account of the ledger anew, and returns what it says then.
func (c *Client) Accept(ctx context.Context, a Accept) (Ledger, error) {
	return call[Ledger](ctx, c, http.MethodPost, "ledger/accept", nil, a)
}
