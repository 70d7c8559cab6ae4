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
	Queue  string `arg:"" help:"Work, wait or failed queue."`
	Reason string `placeholder:"TEXT" help:"Reason, for the audit log. Required without --dry-run."`
	Limit  int    `placeholder:"N" help:"Maximum number of messages. Default: the messages that are ready at the start."`
	Drop   bool   `help:"Do not archive the messages."`
	remote.Act
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
	action := remote.Action{Did: "removed", Verb: "Remove", After: " from " + terminal.OneLine(c.Queue) + " and save them in the archive"}
	if c.Drop {
		action.After = " from " + terminal.OneLine(c.Queue) + " and drop them for good"
	}
	p := api.PurgeQueue{Queue: api.Text(c.Queue), Reason: c.Reason, Drop: c.Drop}
	var total int64 // 0: not counted
	action.Do = func(client *api.Client, dryRun bool) (api.Done, error) {
		if total == 0 {
			found, err := client.PurgeQueue(ctx, p, true)
			if total = found.Messages; c.Limit > 0 {
				total = min(total, int64(c.Limit))
			}
			if found.Messages = total; err != nil || dryRun {
				return found, err
			}
		}
		var done api.Done
		for done.Messages < total {
			p.Limit = int(total - done.Messages)
			some, err := client.PurgeQueue(ctx, p, false)
			if done.Messages += some.Messages; err != nil {
				return done, fmt.Errorf("%w; %s already removed", err, terminal.Plural(int(done.Messages), "message"))
			}
			if some.Messages == 0 { // other consumers have taken the messages
				break
			}
		}
		return done, nil
	}
	return c.Perform(ctx, streams, action)
}
