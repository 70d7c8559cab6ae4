package failedcmd

import (
	"context"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type replaysCmd struct {
	Cancel         int64  `placeholder:"ID" help:"Cancel this replay. Unsent messages return to state failed."`
	Reason         string `placeholder:"TEXT" help:"Reason for --cancel, for the audit log."`
	Limit          int    `default:"20" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON           bool   `name:"json" help:"Print JSON, one object per line."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (replaysCmd) Help() string {
	return `Examples:
  reprise failed replays
  reprise failed replays --cancel 4 --reason 'wrong queue'
`
}

// Run lists replays, or cancels one.
func (c *replaysCmd) Run(ctx context.Context, streams terminal.IO) error {
	switch {
	case c.Cancel < 0:
		return exit.Usagef("--cancel must be the number of a replay: got %d", c.Cancel)
	case c.Reason != "" && c.Cancel == 0:
		return exit.Usagef("--reason requires --cancel ID")
	}
	if c.Cancel == 0 {
		return c.Ask(streams, func(client *api.Client) error { return c.list(ctx, streams, client) })
	}
	return c.Ask(streams, func(client *api.Client) error {
		r, err := cancelReplay(ctx, client, c.Cancel, c.Reason)
		if err != nil {
			return err
		}
		return streams.Result(c.JSON, r, replayText(r)+"\n")
	})
}

func (c *replaysCmd) list(ctx context.Context, streams terminal.IO, client *api.Client) error {
	now := time.Now()
	return remote.Listing[api.Replay]{
		Limit: c.Limit, JSON: c.JSON, None: "no replays",
		Table: terminal.NewTable([]terminal.Column{
			{Name: "ID", Right: true},
			{Name: "STATE"},
			{Name: "BEGUN"},
			{Name: "SENT", Right: true},
			{Name: "OF", Right: true},
			{Name: "REFUSED", Right: true, Spare: true},
			{Name: "SUCCEEDED", Right: true},
			{Name: "FAILED AGAIN", Right: true},
			{Name: "BY", Least: 12},
			{Name: "WHY", Least: 20, Ends: true},
		}),
		Fetch: func(p api.Page) ([]api.Replay, string, error) {
			page, err := client.Replays(ctx, p)
			return page.Replays, page.Next, err
		},
		Cells: func(r api.Replay) []string {
			return []string{
				strconv.FormatInt(r.ID, 10), replayState(r), terminal.Ago(r.Begun, now), strconv.FormatInt(r.Sent, 10), strconv.FormatInt(r.Total, 10),
				strconv.FormatInt(r.Refused, 10), strconv.FormatInt(r.Succeeded, 10), strconv.FormatInt(r.Back, 10), r.Actor, r.Why,
			}
		},
	}.Print(streams)
}
