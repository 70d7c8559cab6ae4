package failedcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/store"
)

type muteCmd struct {
	Group          int64          `required:"" placeholder:"ID" help:"ID of the group."`
	For            *time.Duration `placeholder:"TIME" help:"Duration, such as 24h. Default: until reprise failed unmute."`
	JSON           bool           `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (muteCmd) Help() string {
	return `Notifications do not mention a muted group. The archive still stores its messages.

Examples:
  reprise failed mute --group 3
  reprise failed mute --group 3 --for 24h
`
}

// Run mutes the group.
func (c *muteCmd) Run(ctx context.Context, streams terminal.IO) error {
	d, err := flags.AtLeast(time.Second, "--for", c.For)
	if err != nil {
		return err
	}
	return muted(streams, c.Console, c.Group, c.JSON, func(client *api.Client) (store.Group, error) {
		return client.Mute(ctx, c.Group, api.Mute{Seconds: int64(d / time.Second)})
	})
}

type unmuteCmd struct {
	Group          int64 `required:"" placeholder:"ID" help:"ID of the group."`
	JSON           bool  `name:"json" help:"Print JSON."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (unmuteCmd) Help() string {
	return `Example:
  reprise failed unmute --group 3
`
}

// Run unmutes the group.
func (c *unmuteCmd) Run(ctx context.Context, streams terminal.IO) error {
	return muted(streams, c.Console, c.Group, c.JSON, func(client *api.Client) (store.Group, error) {
		return client.Unmute(ctx, c.Group)
	})
}

// muted mutes or unmutes a group with the function change, and prints the result.
func muted(streams terminal.IO, server remote.Console, id int64, asJSON bool, change func(*api.Client) (store.Group, error)) error {
	if id < 1 {
		return exit.Usagef("--group must be the number of a group: got %d", id)
	}
	return server.Ask(streams, func(client *api.Client) error {
		g, err := change(client)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("group %d is not muted\n", g.ID)
		switch {
		case g.Muted.IsZero():
		case api.Forever(g.Muted):
			text = fmt.Sprintf("group %d is muted\n", g.ID)
		default:
			text = fmt.Sprintf("group %d is muted until %s\n", g.ID, g.Muted.Local().Format("2006-01-02 15:04:05 MST"))
		}
		return streams.Result(asJSON, g, text)
	})
}
