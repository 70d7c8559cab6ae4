package queuecmd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/brief"
)

// Cron is reprise cron.
type Cron struct {
	Ls   cronLsCmd   `cmd:"" help:"List periodic messages with their next times."`
	Next cronNextCmd `cmd:"" help:"Show the next times of a periodic message."`
	Run  cronRunCmd  `cmd:"" help:"Make a periodic message occur now."`
	Rm   cronRmCmd   `cmd:"" help:"Remove a periodic message that no process has any more."`
}

// Help implements kong.HelpProvider.
func (Cron) Help() string {
	return `The entries are those under cron: in the file of reprise up, and those of Go programs with package outbox. The commands
need a console, as reprise schedule does.

Examples:
  reprise cron ls
  reprise cron next nightly -n 10
  reprise cron run nightly
`
}

type cronLsCmd struct {
	JSON           bool `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (cronLsCmd) Help() string {
	return `NEXT is idle if the time has passed and no process inserts the message: no process has the entry any more, or none runs.
reprise cron rm removes an entry that no file and no program has any more.

Examples:
  reprise cron ls
`
}

// Run lists the entries.
func (c *cronLsCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		list, err := client.Cron(ctx, 1)
		if err != nil {
			return err
		}
		if len(list.Entries) == 0 && !c.JSON {
			fmt.Fprintln(streams.Stderr, "no periodic messages")
			return nil
		}
		table := terminal.NewTable([]terminal.Column{{Name: "NAME", Least: 12}, {Name: "NEXT"}, {Name: "TIMES", Least: 12}, {Name: "APP", Least: 8}})
		for _, e := range list.Entries {
			next := "idle"
			if !e.Idle {
				next = terminal.Ago(e.Next[0], time.Now())
			}
			table.Add(e.Name, next, e.Spec, e.App)
		}
		return streams.Result(c.JSON, list, table.Text(streams.Width()))
	})
}

// cronName selects an entry.
type cronName struct {
	Name           string `arg:"" name:"name" help:"Name of the entry."`
	App            string `placeholder:"APP" help:"App of the entry. Required if several apps have the name."`
	remote.Console `group:"Console:"`
}

type cronNextCmd struct {
	cronName
	Number int  `short:"n" default:"5" placeholder:"N" help:"Number of times, 1 to 100. Default ${default}."`
	JSON   bool `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (cronNextCmd) Help() string {
	return `The times are in the time zone of the entry.

Examples:
  reprise cron next nightly -n 10
`
}

// Run prints the next times.
func (c *cronNextCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.Number < 1 || c.Number > 100 {
		return exit.Usagef("-n must be 1 to 100: got %d", c.Number)
	}
	return c.Ask(streams, func(client *api.Client) error {
		list, err := client.Cron(ctx, c.Number)
		if err != nil {
			return err
		}
		var found []api.CronEntry
		for _, e := range list.Entries {
			if e.Name == c.Name && (c.App == "" || e.App == c.App) {
				found = append(found, e)
			}
		}
		switch {
		case len(found) == 0:
			return fmt.Errorf("periodic message %s not found (`reprise cron ls` lists them)", brief.Quoted(c.Name))
		case len(found) > 1:
			return exit.Usagef("several apps have an entry %s (select one with --app)", brief.Quoted(c.Name))
		}
		var b strings.Builder
		for _, at := range found[0].Next {
			fmt.Fprintln(&b, at.In(zoneOf(found[0].Spec)).Format("Mon "+time.RFC3339))
		}
		return streams.Result(c.JSON, found[0], b.String())
	})
}

// zoneOf returns the time zone of a specification.
func zoneOf(spec string) *time.Location {
	first, _, _ := strings.Cut(spec, " ")
	if name, found := strings.CutPrefix(first, "CRON_TZ="); found {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone
		}
	}
	return time.UTC
}

type cronRunCmd struct{ cronName }

// Help implements kong.HelpProvider.
func (cronRunCmd) Help() string {
	return `A running process that has the entry publishes the message, usually within a second. The regular times do not change.

Examples:
  reprise cron run nightly
`
}

// Run makes an entry occur.
func (c *cronRunCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		list, err := client.Cron(ctx, 1)
		if err != nil {
			return err
		}
		name, err := client.RunCron(ctx, api.CronName{App: c.App, Name: c.Name})
		if err != nil {
			return err
		}
		for _, e := range list.Entries {
			if e.Name == name.Name && e.App == name.App && e.Idle {
				fmt.Fprintf(streams.Stderr, "no process inserts the messages of %s: it occurs when one starts\n", terminal.OneLine(e.Name))
			}
		}
		_, err = fmt.Fprintf(streams.Stdout, "%s occurs now\n", terminal.OneLine(name.Name))
		return err
	})
}

type cronRmCmd struct{ cronName }

// Help implements kong.HelpProvider.
func (cronRmCmd) Help() string {
	return `First remove the entry from the files and programs: a process that still has it continues to publish the message, and
lists it again from the next occurrence on. Messages that are scheduled already still leave.

Examples:
  reprise cron rm nightly
`
}

// Run removes an entry.
func (c *cronRmCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		name, err := client.RemoveCron(ctx, api.CronName{App: c.App, Name: c.Name})
		if err == nil {
			_, err = fmt.Fprintf(streams.Stdout, "%s removed\n", terminal.OneLine(name.Name))
		}
		return err
	})
}
