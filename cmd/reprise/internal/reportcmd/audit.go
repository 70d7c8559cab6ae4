// Package reportcmd implements the commands that report what has happened: audit, history and mark.
package reportcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// Audit is reprise audit.
type Audit struct {
	Accept         string `placeholder:"ACCOUNT" help:"Reopen this account after an investigation of its discrepancies. Requires --reason."`
	Reason         string `placeholder:"TEXT" help:"Cause of the discrepancies, for the ledger. Required with --accept."`
	JSON           bool   `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (Audit) Help() string {
	return `Compares, for each work queue, the incoming messages that the broker counts with the messages that workers
have processed, that wait in queues and that failed. The command prints each discrepancy with its time window. The
ledger needs a console with a management API: reprise console --management, or reprise up with management: under
console: (not necessary with the embedded broker). Workers of reprise up with archive: report to the ledger.

AGE is the time since the account was opened; earlier messages are not included. Figures are from a sample, which is up
to 15 s old, or 30 s during traffic. On a narrow terminal, the table omits columns that contain only zeros.

Examples:
  reprise audit
  reprise audit --json | jq '.accounts[] | select(.state == "differs")'
  reprise audit --accept orders --reason 'three test orders, purged by hand'

Exit codes: 0 balanced, 1 a discrepancy or an account without a result, 2 invalid flags.
`
}

// Run shows the ledger. With --accept, it first accepts the discrepancy of an account.
func (c *Audit) Run(ctx context.Context, streams terminal.IO) error {
	switch {
	case c.Accept != "" && c.Reason == "":
		return exit.Usagef("--reason TEXT is required, for the ledger")
	case c.Accept == "" && c.Reason != "":
		return exit.Usagef("--reason requires --accept ACCOUNT")
	}
	return c.Ask(streams, func(client *api.Client) (err error) {
		var a api.Ledger
		if c.Accept != "" {
			a, err = client.Accept(ctx, api.Accept{Account: api.Text(c.Accept), Reason: c.Reason})
		} else {
			a, err = client.Ledger(ctx)
		}
		if err != nil {
			return err
		}
		return errors.Join(streams.Result(c.JSON, a, auditText(a, streams.Width())), verdict(a))
	})
}

// verdict returns nil if all accounts are balanced. Otherwise the error states the number of accounts that differ or
// are unknown, or why the ledger cannot be read.
func verdict(a api.Ledger) error {
	states := map[string]int{}
	for _, l := range a.Accounts {
		states[l.State]++
	}
	switch {
	case !a.Kept:
		return errors.New("ledger not found (start `reprise console --management URL`, or set management under console in the configuration of `reprise up`)")
	case states["differs"] > 0:
		return fmt.Errorf("ledger has %s with a discrepancy", terminal.Plural(states["differs"], "account"))
	case states["unknown"] > 0:
		return fmt.Errorf("the state of %s is unknown", terminal.Plural(states["unknown"], "account"))
	case states["opening"] > 0 || len(a.Accounts) == 0:
		return errors.New("cannot read the ledger while it is being opened (try again in a minute)")
	}
	return nil
}

// sampled formats the time of a sample.
func sampled(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// auditText returns a table of the accounts, and details of its lines.
func auditText(a api.Ledger, width int) string {
	var b strings.Builder
	table := terminal.NewTable([]terminal.Column{
		{Name: "ACCOUNT", Least: 12},
		{Name: "STATE"},
		{Name: "AGE"},
		{Name: "IN", Right: true},
		{Name: "DONE", Right: true},
		{Name: "READY", Right: true, Spare: true},
		{Name: "UNACKED", Right: true, Spare: true},
		{Name: "WAITING", Right: true, Spare: true},
		{Name: "FAILED", Right: true},
		{Name: "REPLAYED", Right: true, Spare: true},
		{Name: "DISCARDED", Right: true, Spare: true},
		{Name: "REMOVED", Right: true, Spare: true},
		{Name: "MISSING", Right: true},
	})
	for _, l := range a.Accounts {
		missing := "-"
		if l.State == "differs" {
			missing = strconv.FormatInt(l.Missing, 10)
		}
		age := "-"
		if !l.Since.IsZero() {
			age = terminal.Roughly(time.Since(l.Since))
		}
		cells := []string{string(l.Account), l.State, age}
		for _, n := range []int64{l.In, l.Done, l.Ready, l.Unacked, l.Waiting, l.Failed, l.Replayed, l.Discarded, l.Removed} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		table.Add(append(cells, missing)...)
	}
	if len(a.Accounts) > 0 {
		b.WriteString(table.Text(width))
	}
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	var newest time.Time
	for _, l := range a.Accounts {
		if l.At.After(newest) {
			newest = l.At
		}
	}
	if !newest.IsZero() {
		say("as of %s\n", sampled(newest))
	}
	for _, l := range a.Accounts {
		name := terminal.OneLine(string(l.Account))
		if !l.At.IsZero() && l.At.Before(newest) {
			say("%s: as of %s\n", name, sampled(l.At))
		}
		if l.State == "balanced" && l.Slack > 0 {
			say("%s: the count is approximate (±%d): messages moved during the count; run it again after a minute without traffic\n", name, l.Slack)
		}
		for _, d := range l.Differences {
			say("%s: %s\n", name, terminal.OneLine(d.Text))
			for _, r := range d.Reasons {
				say("    %s\n", terminal.OneLine(string(r)))
			}
		}
		if l.Note != "" {
			say("%s: %s\n", name, terminal.OneLine(string(l.Note)))
		}
	}
	return b.String()
}
