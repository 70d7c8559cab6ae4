package failedcmd

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

type mergeCmd struct {
	Group          []int64 `required:"" placeholder:"ID" help:"ID of a group. Repeatable."`
	Name           string  `required:"" placeholder:"TEXT" help:"Name of the resulting group."`
	JSON           bool    `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (mergeCmd) Help() string {
	return `The messages of all groups move to one group. Later failures with the same errors also arrive in it. The groups
must be of one work queue. With one group, the command renames the group.

Examples:
  reprise failed merge --group 3 --group 8 --name "customer is blocked"
  reprise failed unmerge --group 9
`
}

// Run merges the groups.
func (c *mergeCmd) Run(ctx context.Context, streams terminal.IO) error {
	m := api.Merge{Name: c.Name}
	for _, id := range c.Group {
		if id < 1 {
			return exit.Usagef("--group must be the number of a group: got %d", id)
		}
		m.Groups = append(m.Groups, failed.GroupID(id))
	}
	return c.Ask(streams, func(client *api.Client) error {
		g, err := client.Merge(ctx, m)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, g, fmt.Sprintf("group %d contains %s: %s\n", g.ID, terminal.Plural(int(g.Counts.Total()), "message"), g.Text))
	})
}

type unmergeCmd struct {
	Group          int64 `required:"" placeholder:"ID" help:"ID of the group."`
	JSON           bool  `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (unmergeCmd) Help() string {
	return `The messages return to the groups of their errors.

Example:
  reprise failed unmerge --group 9
`
}

// Run undoes the merges.
func (c *unmergeCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.Group < 1 {
		return exit.Usagef("--group must be the number of a group: got %d", c.Group)
	}
	return c.Ask(streams, func(client *api.Client) error {
		done, err := client.Unmerge(ctx, c.Group)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, done, terminal.Plural(int(done.Messages), "message")+" moved\n")
	})
}

type regroupCmd struct {
	Queue          *string `placeholder:"NAME" help:"Work queue. Default: all."`
	JSON           bool    `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (regroupCmd) Help() string {
	return `New messages follow the rules of archive.groups in the configuration file. After a change of the rules, this command
moves existing messages to the groups in which they would arrive now.

Example:
  reprise failed regroup --queue orders
`
}

// Run moves the messages.
func (c *regroupCmd) Run(ctx context.Context, streams terminal.IO) error {
	var queue string
	if err := flags.Given("queue", c.Queue, &queue); err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error {
		done, err := client.Regroup(ctx, api.Regroup{Queue: api.Text(queue)})
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, done, terminal.Plural(int(done.Messages), "message")+" moved\n")
	})
}
