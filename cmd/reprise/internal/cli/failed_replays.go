package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
)

type failedReplaysCmd struct {
	Cancel      int64  `placeholder:"ID" help:"Cancel this replay. Unsent messages return to state failed."`
	Reason      string `placeholder:"TEXT" help:"Reason for --cancel, for the audit log."`
	Limit       int    `default:"20" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON        bool   `name:"json" help:"Print JSON, one object per line."`
	serverFlags `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (failedReplaysCmd) Help() string {
	return `Examples:
  reprise failed replays
  reprise failed replays --cancel 4 --reason 'wrong queue'
`
}

// Run lists replays, or cancels one.
func (c *failedReplaysCmd) Run(ctx context.Context, streams IO) error {
	switch {
	case c.Cancel < 0:
		return usagef("--cancel must be the number of a replay: got %d", c.Cancel)
	case c.Reason != "" && c.Cancel == 0:
		return usagef("--reason requires --cancel ID")
	}
	if c.Cancel == 0 {
		return c.ask(streams, func(client *api.Client) error { return c.list(ctx, streams, client) })
	}
	return c.ask(streams, func(client *api.Client) error {
		r, err := cancelReplay(ctx, client, c.Cancel, c.Reason)
		if err != nil {
			return err
		}
		return streams.result(c.JSON, r, replayText(r)+"\n")
	})
}

func (c *failedReplaysCmd) list(ctx context.Context, streams IO, client *api.Client) error {
	now := time.Now()
	return listing[api.Replay]{
		limit: c.Limit, json: c.JSON, none: "no replays",
		table: newTable(column{name: "ID", right: true}, column{name: "STATE"}, column{name: "BEGUN"}, column{name: "SENT", right: true},
			column{name: "OF", right: true}, column{name: "REFUSED", right: true, spare: true}, column{name: "SUCCEEDED", right: true}, column{name: "FAILED AGAIN", right: true}, column{name: "BY", least: 12}, column{name: "WHY", least: 20, ends: true}),
		fetch: func(p api.Page) ([]api.Replay, string, error) {
			page, err := client.Replays(ctx, p)
			return page.Replays, page.Next, err
		},
		cells: func(r api.Replay) []string {
			return []string{
				strconv.FormatInt(r.ID, 10), replayState(r), ago(r.Begun, now), strconv.FormatInt(r.Sent, 10), strconv.FormatInt(r.Total, 10),
				strconv.FormatInt(r.Refused, 10), strconv.FormatInt(r.Succeeded, 10), strconv.FormatInt(r.Back, 10), r.Actor, r.Why,
			}
		},
	}.print(streams)
}
