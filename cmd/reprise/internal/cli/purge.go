package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/api"
)

type purgeCmd struct {
	Queue  string `arg:"" help:"The queue: a work, wait or failed queue."`
	Reason string `placeholder:"TEXT" help:"Why, for the record. Required, except with --dry-run."`
	Limit  int    `placeholder:"N" help:"Remove the oldest N only. Default: all that are ready at the beginning."`
	Drop   bool   `help:"Do not save the messages in the archive."`
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `name:"dry-run" help:"Count the messages, and remove none."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
	serverFlags
}

// Help shows examples below the flags.
func (purgeCmd) Help() string {
	return `Asks a console that runs to remove the messages that are ready in a queue, the oldest first and no more
than it counts at the beginning. They are saved in the archive as discarded messages: reprise failed undo
restores them, and reprise failed replay sends them. The audit log records who removed them and why. For
administrators.

Examples:
  reprise purge orders --dry-run
  reprise purge orders --reason 'test orders of May'
  reprise purge orders --reason 'flood of duplicates' --drop --yes
`
}

// Run purges a queue.
func (c *purgeCmd) Run(ctx context.Context, streams IO) error {
	switch {
	case c.Queue == "":
		return usagef("the name of the queue must not be empty")
	case c.Limit < 0:
		return usagef("--limit %d: give 1 or more, or leave it out", c.Limit)
	case strings.TrimSpace(c.Reason) == "" && !c.DryRun:
		return usagef("--reason TEXT is required: it is kept in the audit log")
	}
	return c.ask(streams, func(client *api.Client) error { return c.purge(ctx, streams, client) })
}

func (c *purgeCmd) purge(ctx context.Context, streams IO, client *api.Client) error {
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
		return tell(streams, found, nil, c.JSON, "removed", 0)
	}
	if !c.Yes && streams.interactive() {
		fate := "save them in the archive"
		if c.Drop {
			fate = "drop them for good"
		}
		if ok, err := confirm(ctx, streams, fmt.Sprintf("Remove %s from %s and %s?", terminal.Plural(int(found.Messages), "message"), terminal.OneLine(c.Queue), fate)); !ok {
			return err
		}
	}
	var done api.Done
	for left := found.Messages; left > 0; left = found.Messages - done.Messages {
		p.Limit = int(left)
		some, err := client.PurgeQueue(ctx, p, false)
		if done.Messages += some.Messages; err != nil {
			return fmt.Errorf("%w; %s removed before", err, terminal.Plural(int(done.Messages), "message"))
		}
		if some.Messages == 0 { // other consumers have taken the messages
			break
		}
	}
	return tell(streams, done, nil, c.JSON, "removed", 0)
}
