package cli

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/api"
)

type failedPurgeCmd struct {
	Yes    bool `short:"y" help:"Do not ask."`
	DryRun bool `name:"dry-run" help:"Say how many there are, and remove none."`
	JSON   bool `name:"json" help:"Print the result as JSON."`
	serverFlags
}

// Help shows examples below the flags.
func (failedPurgeCmd) Help() string {
	return `The archive does it by itself each hour, if it is told for how long to keep messages: with --keep, or
keep: in the file of reprise up. What is being replayed stays. What is removed is gone; the audit log has
how many, of which queues, and who did it.

Examples:
  reprise failed purge --dry-run
  reprise failed purge --yes
`
}

// Run removes messages.
func (c *failedPurgeCmd) Run(ctx context.Context, streams IO) error {
	return c.ask(streams, func(client *api.Client) error {
		asks := !c.Yes && streams.interactive()
		if c.DryRun || asks {
			done, err := client.Purge(ctx, true)
			if err != nil || c.DryRun {
				return tell(streams, done, err, c.JSON, "removed", 0)
			}
			if ok, err := confirm(ctx, streams, fmt.Sprintf("Remove %s for good?", terminal.Plural(int(done.Messages), "message"))); !ok {
				return err
			}
		}
		done, err := client.Purge(ctx, false)
		return tell(streams, done, err, c.JSON, "removed", 0)
	})
}
