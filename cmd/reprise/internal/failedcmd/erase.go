package failedcmd

import (
	"context"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type eraseCmd struct {
	selection `group:"Selection:"`
	All       bool   `help:"Select all messages in all states."`
	Reason    string `placeholder:"TEXT" help:"Reason, for the audit log, without personal data. Required without --dry-run."`
	remote.Act
}

// Help implements kong.HelpProvider.
func (eraseCmd) Help() string {
	return `Deletes bodies, headers, errors, edits and IDs of messages in all states, and their entries in the search index.
--text and --header also find edits, and values that the configuration hides (redact). Then the command reads all
messages that match the other flags.
Failed messages are discarded and cannot be restored. The audit log keeps the user, the number of messages, the time
and the reason; the command also erases texts in the log that contain the words of --text, --error or a header.
Messages of a running replay do not change, and the exit code is 1. The command requires the role admin.

Examples:
  reprise failed erase --text 'anna@example.com' --dry-run
  reprise failed erase --text 'anna@example.com' --reason 'request 4711'
  reprise failed erase --queue signups --until 30d --reason 'retention' --yes
`
}

// Run erases messages.
func (c *eraseCmd) Run(ctx context.Context, streams terminal.IO) error {
	s, err := c.some(c.All)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" && !c.DryRun {
		return exit.Usagef("--reason TEXT is required (the audit log keeps the text, so do not write personal data)")
	}
	return c.Perform(ctx, streams, remote.Action{
		Did: "erased", Verb: "Erase", After: " for good", Named: len(c.IDs), Selection: &s,
		Do: func(client *api.Client, dryRun bool) (api.Done, error) {
			return client.Erase(ctx, api.Erase{Selection: s, Reason: c.Reason}, dryRun)
		},
	})
}
