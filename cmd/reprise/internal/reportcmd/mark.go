package reportcmd

import (
	"context"
	"fmt"
	"strconv"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/history"
)

// Mark is reprise mark.
type Mark struct {
	Add markAddCmd `cmd:"" default:"withargs" help:"Add a mark (the default)."`
	Ls  markLsCmd  `cmd:"" help:"List the marks, the newest first."`
	Rm  markRmCmd  `cmd:"" help:"Remove a mark."`
}

// Help implements kong.HelpProvider.
func (Mark) Help() string {
	return `Charts show the mark, and a rise of failures shortly after the mark refers to it. The command needs a running console: reprise console, or reprise up with console: in its file.

Examples:
  reprise mark v2.4
  reprise mark "v2.4 rolled back" --at 10m --queue orders
  reprise mark ls
  reprise mark rm 3
`
}

type markAddCmd struct {
	Text           string       `arg:"" help:"Description of the event, in one line."`
	At             flags.Moment `placeholder:"TIME" help:"Time of the event: 2026-03-01T09:00:00Z, 2026-03-01 09:00 (local time), or 10m for ten minutes ago. Default: now."`
	Queue          string       `placeholder:"NAME" help:"Work queue of the event. Default: all."`
	JSON           bool         `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help returns the help of the parent command.
func (markAddCmd) Help() string { return Mark{}.Help() }

// Run adds a mark.
func (c *markAddCmd) Run(ctx context.Context, streams terminal.IO) error {
	m := api.NewMark{Text: c.Text, Queue: api.Text(c.Queue), Time: c.At.Time()}
	return c.Ask(streams, func(client *api.Client) error {
		added, err := client.AddMark(ctx, m)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, added, fmt.Sprintf("mark %d at %s: %s\n", added.ID, sampled(added.At), terminal.OneLine(added.Text)))
	})
}

type markLsCmd struct {
	JSON           bool `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Run lists the marks.
func (c *markLsCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		all, err := client.Marks(ctx)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, all, marksText(all.Marks, streams.Width()))
	})
}

func marksText(marks []history.Mark, width int) string {
	if len(marks) == 0 {
		return "no marks\n"
	}
	table := terminal.NewTable([]terminal.Column{{Name: "ID", Right: true}, {Name: "TIME"}, {Name: "QUEUE", Least: 8}, {Name: "BY", Least: 8}, {Name: "TEXT", Least: 20}})
	for _, m := range marks {
		queue := string(m.Queue)
		if queue == "" {
			queue = "all"
		}
		table.Add(strconv.FormatInt(m.ID, 10), sampled(m.At), queue, string(m.By), m.Text)
	}
	return table.Text(width)
}

type markRmCmd struct {
	ID             int64 `arg:"" name:"id" help:"Mark ID."`
	JSON           bool  `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Run removes a mark.
func (c *markRmCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.ID < 1 {
		return exit.Usagef("id must be the number of a mark: got %d", c.ID)
	}
	return c.Ask(streams, func(client *api.Client) error {
		m, err := client.RemoveMark(ctx, c.ID)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, m, fmt.Sprintf("mark %d removed: %s\n", m.ID, terminal.OneLine(m.Text)))
	})
}
