package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/api"
)

type failedEraseCmd struct {
	selection
	All    bool   `help:"All messages, in whatever state."`
	Reason string `placeholder:"TEXT" help:"Why, for the record, without personal data. Required, except with --dry-run."`
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `name:"dry-run" help:"Count the messages, and erase none."`
	JSON   bool   `name:"json" help:"Print the result as JSON."`
	serverFlags
}

// Help shows examples below the flags.
func (failedEraseCmd) Help() string {
	return `Deletes bodies, headers, errors, edits and ids of messages in any state, and what the search knows of
them. Failed messages are discarded, and cannot be restored. The audit log keeps who erased how many, when
and why. Texts in it that contain the words of --text, --error or a header are erased, too. Messages of a
replay that runs are left. For administrators.

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
		return usagef("--reason TEXT is required: it is kept in the audit log, and must not be personal data")
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
				return tell(streams, done, nil, c.JSON, "erased", 0)
			}
			if ok, err := confirm(ctx, streams, fmt.Sprintf("Erase %s for good?", terminal.Plural(int(done.Messages), "message"))); !ok {
				return err
			}
			e.AtMost = done.Messages
		}
		done, err := client.Erase(ctx, e, false)
		return tell(streams, done, err, c.JSON, "erased", len(c.IDs))
	})
}
