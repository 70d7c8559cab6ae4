package failedcmd

import (
	"context"

	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type purgeCmd struct{ remote.Act }

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
	return c.Perform(ctx, streams, remote.Action{
		Did: "removed", Verb: "Remove", After: " for good",
		Do: func(client *api.Client, dryRun bool) (api.Done, error) { return client.Purge(ctx, dryRun) },
	})
}
