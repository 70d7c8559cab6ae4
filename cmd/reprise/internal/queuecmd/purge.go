package queuecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// Purge is reprise purge.
type Purge struct {
	Queue          string `arg:"" help:"Work, wait or failed queue."`
	Reason         string `placeholder:"TEXT" help:"Reason, for the audit log. Required without --dry-run."`
	Limit          int    `placeholder:"N" help:"Maximum number of messages. Default: the messages that are ready at the start."`
	Drop           bool   `help:"Do not archive the messages."`
	Yes            bool   `short:"y" help:"Do not ask for confirmation."`
	DryRun         bool   `name:"dry-run" help:"Only count the messages."`
	JSON           bool   `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (Purge) Help() string {
	return `Asks a running console to remove the messages that are ready in a queue, oldest first. Messages that arrive
later stay. The archive stores the removed messages as discarded: reprise failed undo restores them, and reprise
failed replay sends them. The audit log records the user and the reason. The command requires the role admin.

Examples:
  reprise purge orders --dry-run
  reprise purge orders --reason 'test orders of May'
  reprise purge orders --reason 'flood of duplicates' --drop --yes
`
}

// Run purges a queue.
func (c *Purge) Run(ctx context.Context, streams terminal.IO) error {
	switch {
	case c.Queue == "":
		return exit.Usagef("the name of the queue must not be empty")
	case c.Limit < 0:
		return exit.Usagef("--limit must be at least 1: got %d", c.Limit)
	case strings.TrimSpace(c.Reason) == "" && !c.DryRun:
		return exit.Usagef("--reason TEXT is required (the audit log keeps the text)")
	}
	return c.Ask(streams, func(client *api.Client) error { return c.purge(ctx, streams, client) })
}

func (c *Purge) purge(ctx context.Context, streams terminal.IO, client *api.Client) error {
	p := api.PurgeQueue{Queue: api.Text(c.Queue), Reason: c.Reason, Drop: c.Drop}
	found, err := client.PurgeQueue(ctx, p, true)
	if err != nil {
		return err
	}
	if c.Limit > 0 {
		found.Messages = min(found.Messages, int64(c.Limit))
	}
	if c.DryRun || found.Messages == 0 {
		found.DryRun = c.DryRun
		return remote.PrintDone(streams, found, nil, c.JSON, "removed", 0)
	}
	if !c.Yes {
		action := "save them in the archive"
		if c.Drop {
			action = "drop them for good"
		}
		if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Remove %s from %s and %s?", terminal.Plural(int(found.Messages), "message"), terminal.OneLine(c.Queue), action)); !ok {
			return err
		}
	}
	var done api.Done
	for left := found.Messages; left > 0; left = found.Messages - done.Messages {
		p.Limit = int(left)
		some, err := client.PurgeQueue(ctx, p, false)
		if done.Messages += some.Messages; err != nil {
			return fmt.Errorf("%w; %s already removed", err, terminal.Plural(int(done.Messages), "message"))
		}
		if some.Messages == 0 { // other consumers have taken the messages
			break
		}
	}
	return remote.PrintDone(streams, done, nil, c.JSON, "removed", 0)
}
