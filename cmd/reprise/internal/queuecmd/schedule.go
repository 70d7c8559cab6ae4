package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/content"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

// Schedule is reprise schedule.
type Schedule struct {
	Ls      scheduleLsCmd     `cmd:"" help:"List messages, the next due first."`
	Show    scheduleShowCmd   `cmd:"" help:"Show a message with its headers and its body."`
	Cancel  scheduleCancelCmd `cmd:"" help:"Delete messages before they leave."`
	Move    scheduleMoveCmd   `cmd:"" help:"Change the time at which messages leave."`
	SendNow scheduleSendCmd   `cmd:"" name:"send-now" help:"Let messages leave now."`
}

// Help implements kong.HelpProvider.
func (Schedule) Help() string {
	return `The messages are in an outbox: those of reprise publish --in, of cron: in the file of reprise up, and of Go programs with
package outbox. The commands need a running console that knows the outbox: reprise up with outbox:, archive: and
console: in its file, or reprise console --outbox STORE.

Examples:
  reprise publish --to orders --in 2h '{"id": 7}'
  reprise schedule ls --key orders --before 3h
  reprise schedule move 17 --in 1d
  reprise schedule cancel --order-key customer-9
  reprise schedule send-now --failed

Exit codes: 0 done, 1 failed, 2 invalid flags, 3 some messages did not change.
`
}

// scheduleSelection contains the flags that select messages of the outbox. A message must match all given flags.
type scheduleSelection struct {
	IDs       []int64 `arg:"" optional:"" name:"id" help:"IDs, as ls prints them."`
	Key       *string `placeholder:"KEY" help:"Routing key; without an exchange, the queue."`
	Exchange  *string `placeholder:"NAME" help:"Exchange."`
	OrderKey  *string `name:"order-key" placeholder:"KEY" help:"Key of the order."`
	MessageID *string `name:"message-id" placeholder:"ID" help:"Message ID."`
	Failed    bool    `help:"Only messages with a failed attempt."`
	From      string  `placeholder:"TIME" help:"Due at this time or later, such as 10m from now, or 2026-03-01T09:00:00Z."`
	Before    string  `placeholder:"TIME" help:"Due before this time."`
}

// filter converts the selection for the console.
func (s *scheduleSelection) filter(now time.Time) (f api.ScheduledFilter, err error) {
	var key, exchange, order, id string
	err = cmp.Or(flags.Given("key", s.Key, &key), flags.Given("exchange", s.Exchange, &exchange), flags.Given("order-key", s.OrderKey, &order), flags.Given("message-id", s.MessageID, &id))
	if err != nil {
		return f, err
	}
	f = api.ScheduledFilter{IDs: s.IDs, RoutingKey: api.Text(key), Exchange: api.Text(exchange), OrderKey: api.Text(order), MessageID: api.Text(id), Failed: s.Failed}
	for _, id := range s.IDs {
		if id < 1 {
			return f, exit.Usagef("ID must be at least 1: got %d (`reprise schedule ls` lists the IDs)", id)
		}
	}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{{"--from", s.From, &f.From}, {"--before", s.Before, &f.Before}} {
		if t.text == "" {
			continue
		}
		if d, err := config.ParseDuration(t.text); err == nil {
			*t.into = now.Add(d)
		} else if *t.into, err = params.ReadTime(t.text, now, time.Local); err != nil {
			return f, exit.Usagef("%s: %s is not a time (write 10m for ten minutes from now, or 2026-03-01T09:00:00Z)", t.flag, brief.Quoted(t.text))
		}
	}
	return f, nil
}

// momentFlags select a time in the future.
type momentFlags struct {
	In *time.Duration `placeholder:"TIME" help:"Time from now, such as 10m or 2d."`
	At *string        `placeholder:"TIME" help:"Time, such as 2026-03-01T09:00:00+01:00; without a zone, in the zone of this machine."`
}

// moment returns the value of the flags, or zero values without them.
func (m momentFlags) moment() (at time.Time, in api.Duration, err error) {
	switch {
	case m.In != nil && m.At != nil:
		return at, in, exit.Usagef("--in and --at exclude each other")
	case m.In != nil && *m.In < 0:
		return at, in, exit.Usagef("--in must not be negative: got %s", *m.In)
	case m.In != nil:
		return at, api.Duration(*m.In), nil
	case m.At == nil:
		return at, in, nil
	}
	if _, err := config.ParseDuration(*m.At); err == nil {
		return at, in, exit.Usagef("--at must be a time: got %s (use --in %s)", brief.Quoted(*m.At), *m.At)
	}
	if at, err = params.ReadTime(*m.At, time.Time{}, time.Local); err != nil {
		return at, in, exit.Usagef("--at: %s is not a time (example: 2026-03-01T09:00:00Z)", brief.Quoted(*m.At))
	}
	return at, in, nil
}

type scheduleLsCmd struct {
	scheduleSelection `group:"Selection:"`
	Limit             int  `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON              bool `name:"json" help:"Print JSON, one object per line."`
	remote.Console    `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (scheduleLsCmd) Help() string {
	return `Lists messages that have not left, also while they are being published. ATTEMPTS is the number of failed attempts; the
message is published again after at most 5 minutes, until it leaves or is canceled.

Examples:
  reprise schedule ls --failed
  reprise schedule ls --json | jq -r '.message_id'
`
}

// Run lists messages.
func (c *scheduleLsCmd) Run(ctx context.Context, streams terminal.IO) error {
	now := time.Now()
	f, err := c.filter(now)
	if err != nil {
		return err
	}
	none := "no messages are scheduled"
	if !f.IsZero() {
		none = "no scheduled messages match the selection"
	}
	return c.Ask(streams, func(client *api.Client) error {
		err := remote.Listing[api.Scheduled]{
			Limit: c.Limit, JSON: c.JSON, None: none, More: true,
			Table: terminal.NewTable([]terminal.Column{
				{Name: "ID", Right: true},
				{Name: "DUE"},
				{Name: "TO", Least: 12},
				{Name: "ORDER KEY", Least: 8},
				{Name: "ATTEMPTS", Right: true},
				{Name: "MESSAGE", Least: 8},
				{Name: "ERROR", Least: 20, Ends: true},
			}),
			Drop: func(_ int, column terminal.Column) bool { return column.Name == "ORDER KEY" && c.OrderKey != nil },
			Fetch: func(p api.Page) ([]api.Scheduled, string, error) {
				page, err := client.Scheduled(ctx, f, p)
				return page.Messages, page.Next, err
			},
			Cells: func(m api.Scheduled) []string {
				return []string{
					strconv.FormatInt(m.ID, 10), terminal.Ago(m.Due, now), destinationOf(m), cmp.Or(string(m.OrderKey), "-"), strconv.Itoa(m.Attempts), string(m.MessageID), remote.CauseLine(string(m.Error)),
				}
			},
		}.Print(streams)
		if err != nil || c.JSON {
			return err
		}
		status, err := client.OutboxStatus(ctx)
		if err == nil && !status.Relay {
			fmt.Fprintln(streams.Stderr, "no process publishes the messages of this outbox: run reprise up with outbox:, or the relay of the Go program")
		}
		return err
	})
}

// destinationOf returns the destination as reprise redrive writes it.
func destinationOf(m api.Scheduled) string {
	if m.Exchange == "" {
		return string(m.RoutingKey)
	}
	return string(m.Exchange) + "/" + string(m.RoutingKey)
}

type scheduleShowCmd struct {
	ID             int64 `arg:"" name:"id" help:"ID, as ls prints it."`
	JSON           bool  `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (scheduleShowCmd) Help() string {
	return `Requires the role operate. Only administrators see the values that the archive redacts.

Examples:
  reprise schedule show 17
`
}

// Run shows a message.
func (c *scheduleShowCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		m, err := client.ScheduledMessage(ctx, c.ID)
		if err != nil {
			return err
		}
		now := time.Now()
		var b strings.Builder
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "%-12s %s\n", name, terminal.OneLine(value))
			}
		}
		line("message", fmt.Sprintf("%d, %s", m.ID, m.MessageID))
		line("due", fmt.Sprintf("%s, %s", m.Due.Local().Format(time.RFC3339), terminal.Ago(m.Due, now)))
		line("to", destinationOf(m.Scheduled))
		line("order key", string(m.OrderKey))
		line("unique", string(m.Unique))
		if m.Attempts > 0 {
			line("attempts", fmt.Sprintf("%d failed, next %s", m.Attempts, terminal.Ago(m.RetryAt, now)))
			line("error", string(m.Error))
		}
		b.WriteString(content.Properties(m.Properties) + content.Headers(topology.Table(m.Headers), streams.Width()))
		fmt.Fprintf(&b, "\nbody (%s)\n%s", content.Bytes(len(m.Body)), content.Body(topology.Table(m.Headers), m.Body))
		return streams.Result(c.JSON, m, b.String())
	})
}

// scheduleAct contains the flags that all actions share.
type scheduleAct struct {
	scheduleSelection `group:"Selection:"`
	All               bool   `help:"Select all messages."`
	Reason            string `placeholder:"TEXT" help:"Reason, for the audit log."`
	remote.Act
}

type scheduleCancelCmd struct{ scheduleAct }

// Help implements kong.HelpProvider.
func (scheduleCancelCmd) Help() string {
	return `A canceled message never leaves, unless an attempt to publish it has failed: then the broker may have stored it, and
the result says so. A message that is due may be leaving; it is not canceled, and the exit code is 3. Cancelling frees
the key of --unique.

Examples:
  reprise schedule cancel 17
  reprise schedule cancel --key orders --from 1h --dry-run
`
}

// Run cancels messages.
func (c *scheduleCancelCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, api.ScheduledAct{}, (*api.Client).CancelScheduled, "canceled")
}

type scheduleMoveCmd struct {
	scheduleAct
	momentFlags
}

// Help implements kong.HelpProvider.
func (scheduleMoveCmd) Help() string {
	return `A message with a failed attempt keeps its time; the command moves its next attempt. A message that is due may be
leaving; it is not moved, and the exit code is 3.

Examples:
  reprise schedule move 17 --in 2h
  reprise schedule move --order-key customer-9 --at '2026-03-01 09:00'
`
}

// Run moves messages.
func (c *scheduleMoveCmd) Run(ctx context.Context, streams terminal.IO) error {
	var a api.ScheduledAct
	var err error
	if a.At, a.In, err = c.moment(); err != nil {
		return err
	}
	if c.In != nil && *c.In == 0 {
		return exit.Usagef("--in must be positive: got 0s (send-now sends messages now)")
	}
	if a.At.IsZero() && a.In == 0 {
		return exit.Usagef("a time is required (use --in or --at; send-now sends messages now)")
	}
	return c.act(ctx, streams, a, (*api.Client).MoveScheduled, "moved")
}

type scheduleSendCmd struct{ scheduleAct }

// Help implements kong.HelpProvider.
func (scheduleSendCmd) Help() string {
	return `Messages with a failed attempt are tried again now.

Examples:
  reprise schedule send-now 17
  reprise schedule send-now --failed
`
}

// Run lets messages leave.
func (c *scheduleSendCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.act(ctx, streams, api.ScheduledAct{}, (*api.Client).MoveScheduled, "sent now")
}

// act counts the messages, asks for confirmation if flags select the messages, and performs the action on at most the counted
// messages.
func (c *scheduleAct) act(ctx context.Context, streams terminal.IO, a api.ScheduledAct, do func(*api.Client, context.Context, api.ScheduledAct, bool) (api.ScheduledDone, error), did string) error {
	var err error
	if a.Filter, err = c.filter(time.Now()); err != nil {
		return err
	}
	if a.All, a.Reason = c.All, c.Reason; !a.All && a.Filter.IsZero() {
		return exit.Usagef("a selection of messages is required (use IDs, --key, --order-key …, or --all)")
	}
	if err := a.Validate(); err != nil {
		return exit.Usage(err)
	}
	return c.Ask(streams, func(client *api.Client) error {
		would, err := do(client, ctx, a, true)
		if err != nil {
			return err
		}
		a.AtMost, a.Through = min(would.Selected, api.MaxScheduledAct), would.Through
		count := terminal.Plural(int(a.AtMost), "message")
		more := would.Selected - a.AtMost
		if more > 0 {
			count += fmt.Sprintf(" of %d", would.Selected)
		}
		switch {
		case c.DryRun:
			return streams.Result(c.JSON, would, count+" would be "+did+"\n")
		case would.Selected == 0:
			return errors.New("no scheduled messages match the selection (they have left, or do not exist)")
		case len(c.IDs) == 0 && !c.Yes:
			if yes, err := terminal.Confirm(ctx, streams, fmt.Sprintf("%s will be %s. Go on?", count, did)); !yes {
				return err
			}
		}
		done, err := do(client, ctx, a, false)
		if err != nil {
			return err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s\n", terminal.Plural(int(done.Done+done.Attempted), "message"), did)
		if done.Attempted > 0 {
			fmt.Fprintf(&b, "  %d of them after a failed attempt: the broker may have stored the message\n", done.Attempted)
		}
		if done.TooLate > 0 {
			fmt.Fprintf(&b, "  %d unchanged: due, may be leaving now or have left\n", done.TooLate)
		}
		gone := len(c.IDs) - int(done.Selected)
		if gone > 0 {
			fmt.Fprintf(&b, "  %d not found: left, or canceled before\n", gone)
		}
		if more > 0 {
			fmt.Fprintf(&b, "  %d more match the selection: repeat the command\n", more)
		}
		err = streams.Result(c.JSON, done, b.String())
		if done.TooLate > 0 || gone > 0 || more > 0 {
			err = cmp.Or(err, exit.Stopped(errors.New("some messages are unchanged")))
		}
		return err
	})
}
