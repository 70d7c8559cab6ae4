package failedcmd

import (
	"context"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

type showCmd struct {
	ID             int64 `arg:"" help:"Message ID."`
	Body           bool  `help:"Print only the body, unchanged."`
	Raw            bool  `name:"original" help:"Print the message without its edits."`
	JSON           bool  `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (showCmd) Help() string {
	return `Examples:
  reprise failed show 17
  reprise failed show 17 --body | jq .
  reprise failed show 17 --json
`
}

// Run shows a message.
func (c *showCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.Body && c.JSON {
		return exit.Usagef("--body and --json exclude each other")
	}
	return c.Ask(streams, func(client *api.Client) error {
		m, err := client.Message(ctx, c.ID)
		if err != nil {
			return err
		}
		content := m.Original
		if m.Edited != nil && !c.Raw {
			content = *m.Edited
		}
		if c.Body {
			return streams.Result(false, nil, string(content.Body))
		}
		if c.JSON {
			return streams.Result(true, m, "")
		}
		acts, err := client.Acts(ctx, store.ActFilter{Message: failed.ID(c.ID)}, api.Page{})
		if err != nil {
			return err
		}
		return streams.Result(false, m, messageText(m, acts.Acts, content, time.Now(), streams.Width()))
	})
}
