package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
)

// Waiting is reprise waiting.
type Waiting struct {
	Ls       waitingLsCmd       `cmd:"" help:"List messages, the next due first."`
	Groups   waitingGroupsCmd   `cmd:"" help:"Count messages by queue and error."`
	Retry    waitingRetryCmd    `cmd:"" help:"Retry messages now."`
	Postpone waitingPostponeCmd `cmd:"" help:"Set a new delay for messages."`
	Park     waitingParkCmd     `cmd:"" help:"Move messages to the failed queue."`
}

// Help implements kong.HelpProvider.
func (Waiting) Help() string {
	return `The commands need a running console: reprise console, or reprise up with console: in its file. Workers that announce
themselves report their retries: workers of reprise up, and Go programs with Config.Announce.

Examples:
  reprise waiting groups
  reprise waiting ls --group 3f1a --before 10m
  reprise waiting retry --group 3f1a
  reprise waiting postpone --queue orders --for 2h --reason 'the payment provider is down'
  reprise waiting park 17 18

Exit codes: 0 done, 1 failed, 2 invalid flags, 3 some messages did not change.
`
}

// waitingSelection contains the flags that select waiting messages. A message must match all given flags.
type waitingSelection struct {
	IDs     []store.WaitingID `arg:"" optional:"" name:"id" help:"Message IDs."`
	Queue   *string           `placeholder:"NAME" help:"Work queue."`
	Group   *string           `placeholder:"KEY" help:"Key of an error group, or its first characters."`
	Error   *string           `placeholder:"TEXT" help:"Part of the error, with the same case."`
	Attempt *int              `placeholder:"N" help:"Minimum number of attempts."`
	Before  string            `placeholder:"TIME" help:"Maximum time until the retry, such as 10m."`
}

// filter converts the selection for the console.
func (s *waitingSelection) filter() (f store.WaitingFilter, err error) {
	var queue, text string
	err = cmp.Or(flags.Given("queue", s.Queue, &queue), flags.Given("group", s.Group, &f.Group), flags.Given("error", s.Error, &text), flags.Given("attempt", s.Attempt, &f.Attempt))
	if err != nil {
		return f, err
	}
	f.Queue, f.Error, f.IDs = api.Text(queue), api.Text(text), s.IDs
	if s.Before != "" {
		d, err := config.ParseDuration(s.Before)
		if err != nil {
			return f, exit.Usagef("--before: %w", err)
		}
		f.Before = time.Now().Add(d)
	}
	for _, id := range s.IDs {
		if id < 1 {
			return f, exit.Usagef("message number must be at least 1: got %d (`reprise waiting ls` lists the numbers)", id)
		}
	}
	return f, nil
}

type waitingLsCmd struct {
	waitingSelection `group:"Waiting selection:"`
	Limit            int  `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON             bool `name:"json" help:"Print JSON, one object per line."`
	remote.Console   `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (waitingLsCmd) Help() string {
	return `ATTEMPTS is the number of failed attempts. Workers do not report successes, so a due message stays in the
list until a worker reports its next failure, or for one minute and a quarter of its delay.

Examples:
  reprise waiting ls --queue orders --before 10m
  reprise waiting ls --json | jq -r '.message_id'
`
}

// Run lists messages.
func (c *waitingLsCmd) Run(ctx context.Context, streams terminal.IO) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	now := time.Now()
	return c.Ask(streams, func(client *api.Client) error {
		return remote.Listing[store.Waiting]{
			Limit: c.Limit, JSON: c.JSON, None: "no messages wait for a retry", More: true,
			Table: terminal.NewTable([]terminal.Column{
				{Name: "ID", Right: true},
				{Name: "QUEUE", Least: 12},
				{Name: "DUE"},
				{Name: "ATTEMPTS", Right: true},
				{Name: "MESSAGE", Least: 8},
				{Name: "ERROR", Least: 20, Ends: true},
			}),
			Fetch: func(p api.Page) ([]store.Waiting, string, error) {
				page, err := client.Waiting(ctx, f, p)
				return page.Messages, page.Next, err
			},
			Cells: func(w store.Waiting) []string {
				return []string{
					strconv.FormatInt(int64(w.ID), 10), string(w.Queue), dueText(w.Due, now), strconv.Itoa(w.Attempt), cmp.Or(string(w.MessageID), "-"), remote.CauseLine(string(w.Error)),
				}
			},
		}.Print(streams)
	})
}

type waitingGroupsCmd struct {
	waitingSelection `group:"Waiting selection:"`
	JSON             bool `name:"json" help:"Print JSON."`
	remote.Console   `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (waitingGroupsCmd) Help() string {
	return `A group contains the messages of one queue whose errors differ only in numbers, IDs, addresses and times. DUE is
the number of messages that are due, NEXT the time of the next retry.

Examples:
  reprise waiting groups
  reprise waiting groups --queue orders --attempt 5
`
}

// Run counts messages.
func (c *waitingGroupsCmd) Run(ctx context.Context, streams terminal.IO) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error {
		s, err := client.WaitingSummary(ctx, f)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, s, waitingText(s, time.Now(), streams.Width()))
	})
}

// waitingText formats the waiting messages as a table, with notes.
func waitingText(s api.WaitingSummary, now time.Time, width int) string {
	var b strings.Builder
	table := terminal.NewTable([]terminal.Column{
		{Name: "GROUP"},
		{Name: "QUEUE", Least: 12},
		{Name: "WAITING", Right: true},
		{Name: "DUE", Right: true},
		{Name: "ATTEMPTS", Right: true},
		{Name: "NEXT"},
		{Name: "ERROR", Least: 20, Ends: true},
	})
	for _, g := range s.Groups {
		table.Add(g.Key[:min(8, len(g.Key))], string(g.Queue), strconv.FormatInt(g.Counts.Messages, 10), strconv.FormatInt(g.Counts.Due, 10),
			strconv.Itoa(g.Counts.Attempts), dueText(g.Counts.Next, now), cmp.Or(g.Text, "(no error is known)"))
	}
	if len(s.Groups) == 0 {
		b.WriteString("no messages wait for a retry\n")
	} else {
		b.WriteString(table.Text(width))
	}
	if s.Missing > 0 {
		fmt.Fprintf(&b, "%d retries of the last day are missing: the list has room for %d\n", s.Missing, store.MaxWaiting)
	}
	for _, q := range s.Blocked {
		fmt.Fprintf(&b, "blocked: %d messages in %s cannot return: %s; to unblock the queue: %s\n",
			q.Messages, terminal.OneLine(string(q.WaitQueue)), terminal.OneLine(string(q.Cause)), terminal.OneLine(string(q.Remedy)))
	}
	for _, queue := range s.Silent {
		fmt.Fprintf(&b, "retries of queue %s are not known: its workers retried before this console started, or have an older version, which does not report retries\n", terminal.OneLine(string(queue)))
	}
	for _, queue := range s.Keyed {
		fmt.Fprintf(&b, "queue %s keeps the order of keys: `reprise keys ls` lists its waiting messages\n", terminal.OneLine(string(queue)))
	}
	if s.Problem != "" {
		b.WriteString(s.Problem + "\n")
	}
	return b.String()
}

// dueText formats the time of a retry. Workers do not report that a retry has begun, so a message is listed for some time after it.
func dueText(due, now time.Time) string {
	if !due.After(now) {
		return "now"
	}
	return terminal.Ago(due, now)
}

// waitingAct contains the flags that all actions share.
type waitingAct struct {
	waitingSelection `group:"Waiting selection:"`
	All              bool   `help:"Select all messages in wait queues."`
	Reason           string `placeholder:"TEXT" help:"Reason, for the audit log."`
	remote.Act
}

type waitingRetryCmd struct{ waitingAct }

// Help implements kong.HelpProvider.
func (waitingRetryCmd) Help() string {
	return `The broker delivers the messages immediately. No message is lost or duplicated.

Examples:
  reprise waiting retry 17
  reprise waiting retry --group 3f1a --dry-run
`
}

// Run retries messages.
func (c *waitingRetryCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, waiting.RetryNow, 0, "retried")
}

type waitingPostponeCmd struct {
	waitingAct
	For time.Duration `required:"" placeholder:"TIME" help:"New delay, such as 2h: from 1s to 49d."`
}

// Help implements kong.HelpProvider.
func (waitingPostponeCmd) Help() string {
	return `The number of attempts does not change. No message is lost. If the console is killed meanwhile, up to 500
messages are duplicated.

Examples:
  reprise waiting postpone --queue orders --for 2h
`
}

// Run postpones messages.
func (c *waitingPostponeCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, waiting.Postpone, c.For, "postponed")
}

type waitingParkCmd struct{ waitingAct }

// Help implements kong.HelpProvider.
func (waitingParkCmd) Help() string {
	return `The messages move to the failed queue with their errors, and have no more retries. No message is lost. If the
console is killed meanwhile, up to 500 messages are duplicated.

Examples:
  reprise waiting park --error 'no such customer' --reason 'test orders of May'
`
}

// Run parks messages.
func (c *waitingParkCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, waiting.ParkNow, 0, "parked")
}

// act counts the messages, asks for confirmation if flags select the messages, and performs the action.
// It does not act on more messages than it has counted.
func (c *waitingAct) act(ctx context.Context, streams terminal.IO, do waiting.Do, delay time.Duration, did string) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	a := waiting.Act{Do: do, Filter: f, All: c.All, Delay: api.Duration(delay), Reason: c.Reason}
	if !c.All && reflect.ValueOf(f).IsZero() {
		return exit.Usagef("a selection of messages is required (use --queue, --group, --error …, or --all)")
	}
	if err := a.Validate(); err != nil {
		return exit.Usage(err)
	}
	return c.Ask(streams, func(client *api.Client) error {
		would, err := client.ActOnWaiting(ctx, a, true)
		if err != nil {
			return err
		}
		count := terminal.Plural(int(would.Selected), "message")
		if c.DryRun {
			return streams.Result(c.JSON, would, count+" would be "+did+"\n")
		}
		if would.Selected == 0 {
			return errors.New("no waiting messages match the selection")
		}
		if len(c.IDs) == 0 && !c.Yes {
			if yes, err := terminal.Confirm(ctx, streams, fmt.Sprintf("%s will be %s. Go on?", count, did)); !yes {
				return err
			}
		}
		a.AtMost = would.Selected
		done, err := client.ActOnWaiting(ctx, a, false)
		if err != nil {
			return err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s\n", terminal.Plural(int(done.Done), "message"), did)
		for _, line := range []struct {
			n   int64
			why string
		}{{done.Gone, "no longer waiting"}, {done.Unsure, "unknown because the connection was lost (unchanged, moved or duplicated)"}} {
			if line.n > 0 {
				fmt.Fprintf(&b, "  %d %s\n", line.n, line.why)
			}
		}
		for _, r := range done.Refused {
			fmt.Fprintf(&b, "  %d unchanged: %s\n", r.Messages, terminal.OneLine(r.Why))
		}
		err = streams.Result(c.JSON, done, b.String())
		if len(done.Refused) > 0 || done.Unsure > 0 {
			err = cmp.Or(err, exit.Stopped(errors.New("some messages are unchanged, or their state is unknown")))
		}
		return err
	})
}
