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

type discardCmd struct {
	selection      `group:"Selection:"`
	All            bool   `help:"Select all messages in state failed."`
	Reason         string `placeholder:"TEXT" help:"Reason, for the audit log. Required without --dry-run."`
	DryRun         bool   `name:"dry-run" help:"Only count the messages."`
	Yes            bool   `short:"y" help:"Do not ask for confirmation."`
	JSON           bool   `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (discardCmd) Help() string {
	return `Discarded messages stay in the archive, with the reason and the user. reprise failed undo restores them.

Examples:
  reprise failed discard 17 --reason 'paid by hand'
  reprise failed discard --group 3 --dry-run
  reprise failed discard --queue mails --until 90d --reason 'too late to send'
`
}

// Run discards messages.
func (c *discardCmd) Run(ctx context.Context, streams terminal.IO) error {
	s, err := c.some(c.All)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" && !c.DryRun {
		return exit.Usagef("--reason TEXT is required, for the audit log")
	}
	return c.Ask(streams, func(client *api.Client) error {
		if !c.DryRun && !c.Yes && len(c.IDs) == 0 {
			found, err := client.Discard(ctx, api.Discard{Selection: s, Reason: c.Reason}, true)
			if ok, err := confirmFound(ctx, streams, &s, "Discard", found, err); !ok {
				return remote.PrintDone(streams, api.Done{}, err, c.JSON, "discarded", 0)
			}
		}
		done, err := client.Discard(ctx, api.Discard{Selection: s, Reason: c.Reason}, c.DryRun)
		return remote.PrintDone(streams, done, err, c.JSON, "discarded", len(c.IDs))
	})
}

type undoCmd struct {
	selection      `group:"Selection:"`
	All            bool `help:"Select all discarded messages."`
	DryRun         bool `name:"dry-run" help:"Only count the messages."`
	Yes            bool `short:"y" help:"Do not ask for confirmation."`
	JSON           bool `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (undoCmd) Help() string {
	return `Restored messages are in state failed again, unchanged. reprise failed edit --revert removes an edit.

Examples:
  reprise failed undo 17
  reprise failed undo --group 3
  reprise failed undo --act 12      # what this discard discarded; reprise failed acts lists the acts
`
}

// Run restores messages.
func (c *undoCmd) Run(ctx context.Context, streams terminal.IO) error {
	s, err := c.some(c.All)
	if err != nil {
		return err
	}
	return c.Ask(streams, func(client *api.Client) error {
		if !c.DryRun && !c.Yes && len(c.IDs) == 0 {
			found, err := client.Restore(ctx, s, true)
			if ok, err := confirmFound(ctx, streams, &s, "Restore", found, err); !ok {
				return remote.PrintDone(streams, api.Done{}, err, c.JSON, "restored", 0)
			}
		}
		done, err := client.Restore(ctx, s, c.DryRun)
		return remote.PrintDone(streams, done, err, c.JSON, "restored", len(c.IDs))
	})
}

// confirmFound asks whether an action applies to the messages that a dry run has found, and limits the selection to them. It
// returns false without an error if the dry run has found none.
func confirmFound(ctx context.Context, streams terminal.IO, s *api.Selection, verb string, found api.Done, err error) (bool, error) {
	if err != nil || found.Messages == 0 {
		return false, err
	}
	s.AtMost, s.Through = found.Messages, found.Through
	return terminal.Confirm(ctx, streams, fmt.Sprintf("%s %s?", verb, terminal.Plural(int(found.Messages), "message")))
}
