package failedcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type eraseCmd struct {
	selection      `group:"Selection:"`
	All            bool   `help:"Select all messages in all states."`
	Reason         string `placeholder:"TEXT" help:"Reason, for the audit log, without personal data. Required without --dry-run."`
	Yes            bool   `short:"y" help:"Do not ask for confirmation."`
	DryRun         bool   `name:"dry-run" help:"Only count the messages."`
	JSON           bool   `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
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
	return c.Ask(streams, func(client *api.Client) error {
		e := api.Erase{Selection: s, Reason: c.Reason}
		if !c.Yes || c.DryRun {
			done, err := client.Erase(ctx, e, true)
			if err != nil {
				return err
			}
			if c.DryRun || done.Messages == 0 {
				return printErased(streams, done, nil, c.JSON, 0)
			}
			if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Erase %s for good (%s)?", terminal.Plural(int(done.Messages), "message"), done.States.Words())); !ok {
				return err
			}
			e.AtMost, e.Through = done.Messages, done.Through
		}
		done, err := client.Erase(ctx, e, false)
		return printErased(streams, done, err, c.JSON, len(c.IDs))
	})
}

// printErased prints the result of an erasure. It returns an error if messages were not erased, because they belong to
// a running replay.
func printErased(streams terminal.IO, done api.Done, err error, asJSON bool, named int) error {
	what := "erased"
	if done.Messages > 0 && !asJSON {
		what += " (" + done.States.Words() + ")"
	}
	if err = remote.PrintDone(streams, done, err, asJSON, what, named); err != nil || done.Left == 0 {
		return err
	}
	if done.DryRun {
		if !asJSON {
			fmt.Fprintf(streams.Stderr, "reprise: %s would not be erased: a replay is running\n", terminal.Plural(int(done.Left), "message"))
		}
		return nil
	}
	return fmt.Errorf("%s not erased: a replay is running (repeat the command when it has ended)", terminal.Plural(int(done.Left), "message"))
}
