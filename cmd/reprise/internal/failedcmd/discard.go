package failedcmd

import (
	"context"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type discardCmd struct {
	selection `group:"Selection:"`
	All       bool   `help:"Select all messages in state failed."`
	Reason    string `placeholder:"TEXT" help:"Reason, for the audit log. Required without --dry-run."`
	remote.Act
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
	return c.Perform(ctx, streams, remote.Action{
		Did: "discarded", Verb: c.unlessNamed("Discard"), Named: len(c.IDs), Selection: &s,
		Do: func(client *api.Client, dryRun bool) (api.Done, error) {
			return client.Discard(ctx, api.Discard{Selection: s, Reason: c.Reason}, dryRun)
		},
	})
}

type undoCmd struct {
	selection `group:"Selection:"`
	All       bool `help:"Select all discarded messages."`
	remote.Act
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
	return c.Perform(ctx, streams, remote.Action{
		Did: "restored", Verb: c.unlessNamed("Restore"), Named: len(c.IDs), Selection: &s,
		Do: func(client *api.Client, dryRun bool) (api.Done, error) { return client.Restore(ctx, s, dryRun) },
	})
}

// unlessNamed returns the verb of the question, or "" if the user has named the messages by their IDs.
func (s *selection) unlessNamed(verb string) string {
	if len(s.IDs) > 0 {
		return ""
	}
	return verb
}
