package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

type failedActsCmd struct {
	Actor       string `placeholder:"TEXT" help:"Part of the actor; case is ignored."`
	Text        string `placeholder:"TEXT" help:"Part of the action, the subject, or a detail such as the reason; case is ignored."`
	Since       moment `placeholder:"TIME" help:"Time of the act, or later."`
	Until       moment `placeholder:"TIME" help:"Upper limit for the time of the act."`
	Message     int64  `placeholder:"ID" help:"Acts that discarded, restored, reverted, erased or purged this message."`
	Limit       int    `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON        bool   `name:"json" help:"Print JSON, one object per line."`
	serverFlags `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (failedActsCmd) Help() string {
	return `Lists the audit log, newest first. The ID of an act selects its messages: reprise failed undo --act 12.

Examples:
  reprise failed acts --actor anna --since 2h
  reprise failed acts --text 'test orders'
  reprise failed acts --message 17
`
}

// Run lists acts.
func (c *failedActsCmd) Run(ctx context.Context, streams IO) error {
	if c.Message < 0 {
		return usagef("--message must be at least 1: got %d", c.Message)
	}
	f := failed.ActFilter{Actor: c.Actor, Text: c.Text, Since: c.Since.time(), Until: c.Until.time(), Message: failed.ID(c.Message)}
	now := time.Now()
	return c.ask(streams, func(client *api.Client) error {
		return listing[failed.Act]{
			limit: c.Limit, json: c.JSON, none: "no acts", more: true,
			table: newTable(column{name: "ACT", right: true}, column{name: "TIME"}, column{name: "ACTOR", least: 12}, column{name: "ACTION"},
				column{name: "SUBJECT", least: 8}, column{name: "MESSAGES", right: true}, column{name: "REASON", least: 20, ends: true}),
			fetch: func(p api.Page) ([]failed.Act, string, error) {
				page, err := client.Acts(ctx, f, p)
				return page.Acts, page.Next, err
			},
			cells: func(a failed.Act) []string {
				detail := func(name string) string {
					if v, ok := a.Details[name]; ok {
						return fmt.Sprint(v)
					}
					return "-"
				}
				return []string{strconv.FormatInt(a.ID, 10), ago(a.Time, now), string(a.Actor), a.Verb, a.Subject, detail("messages"), detail("reason")}
			},
		}.print(streams)
	})
}
