package failedcmd

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type purgeCmd struct {
	Yes            bool `short:"y" help:"Do not ask for confirmation."`
	DryRun         bool `name:"dry-run" help:"Only count the messages."`
	JSON           bool `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (purgeCmd) Help() string {
	return `If --keep, or keep: in the file of reprise up, sets a retention time, the archive also removes these
messages every hour. Messages in state replaying stay. Removed messages cannot be restored; the audit log keeps
their number, their queues and the user. The command requires the role admin.

Examples:
  reprise failed purge --dry-run
  reprise failed purge --yes
`
}

// Run removes messages.
func (c *purgeCmd) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		if c.DryRun || !c.Yes {
			done, err := client.Purge(ctx, true)
			if err != nil || c.DryRun || done.Messages == 0 {
				return remote.PrintDone(streams, done, err, c.JSON, "removed", 0)
			}
			if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Remove %s for good?", terminal.Plural(int(done.Messages), "message"))); !ok {
				return err
			}
		}
		done, err := client.Purge(ctx, false)
		return remote.PrintDone(streams, done, err, c.JSON, "removed", 0)
	})
}
