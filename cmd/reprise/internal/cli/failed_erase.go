package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/api"
)

type failedEraseCmd struct {
	selection   `group:"Selection:"`
	All         bool   `help:"Select all messages in all states."`
	Reason      string `placeholder:"TEXT" help:"Reason, for the audit log, without personal data. Required without --dry-run."`
	Yes         bool   `short:"y" help:"Do not ask for confirmation."`
	DryRun      bool   `name:"dry-run" help:"Only count the messages."`
	JSON        bool   `name:"json" help:"Print JSON."`
	serverFlags `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (failedEraseCmd) Help() string {
	return `Deletes bodies, headers, errors, edits and IDs of messages in any state, and their entries in the search index.
Failed messages are discarded and cannot be restored. The audit log keeps the user, the number of messages, the time
and the reason; the command also erases texts in the log that contain the words of --text, --error or a header.
Messages of a running replay do not change. The command requires the role admin.

Examples:
  reprise failed erase --text 'anna@example.com' --dry-run
  reprise failed erase --text 'anna@example.com' --reason 'request 4711'
  reprise failed erase --queue signups --until 30d --reason 'retention' --yes
`
}

// Run erases messages.
func (c *failedEraseCmd) Run(ctx context.Context, streams IO) error {
	s, err := c.some(c.All)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" && !c.DryRun {
		return usagef("--reason TEXT is required (the audit log keeps the text, so do not write personal data)")
	}
	return c.ask(streams, func(client *api.Client) error {
		e := api.Erase{Selection: s, Reason: c.Reason}
		if asks := !c.Yes && streams.interactive(); c.DryRun || asks {
			done, err := client.Erase(ctx, e, true)
			if err != nil {
				return err
			}
			if done.Left > 0 && !c.JSON {
				fmt.Fprintf(streams.Stderr, "reprise: %s left: their replay runs\n", terminal.Plural(int(done.Left), "message"))
			}
			if c.DryRun || done.Messages == 0 {
				return printDone(streams, done, nil, c.JSON, "erased", 0)
			}
			if ok, err := confirm(ctx, streams, fmt.Sprintf("Erase %s for good?", terminal.Plural(int(done.Messages), "message"))); !ok {
				return err
			}
			e.AtMost, e.Through = done.Messages, done.Through
		}
		done, err := client.Erase(ctx, e, false)
		return printDone(streams, done, err, c.JSON, "erased", len(c.IDs))
	})
}
