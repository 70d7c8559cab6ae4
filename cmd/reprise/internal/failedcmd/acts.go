package failedcmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
)

type actsCmd struct {
	Actor          string       `placeholder:"TEXT" help:"Part of the actor; case is ignored."`
	Text           string       `placeholder:"TEXT" help:"Part of the action, the subject, or a detail such as the reason; case is ignored."`
	Since          flags.Moment `placeholder:"TIME" help:"Time of the act, or later."`
	Until          flags.Moment `placeholder:"TIME" help:"Upper limit for the time of the act."`
	Message        int64        `placeholder:"ID" help:"Acts that discarded, restored, reverted, erased or purged this message."`
	Limit          int          `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON           bool         `name:"json" help:"Print JSON, one object per line."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (actsCmd) Help() string {
	return `Lists the audit log, newest first. The ID of an act selects its messages: reprise failed undo --act 12.

Examples:
  reprise failed acts --actor anna --since 2h
  reprise failed acts --text 'test orders'
  reprise failed acts --message 17
`
}

// Run lists acts.
func (c *actsCmd) Run(ctx context.Context, streams terminal.IO) error {
	if c.Message < 0 {
		return exit.Usagef("--message must be at least 1: got %d", c.Message)
	}
	f := store.ActFilter{Actor: c.Actor, Text: c.Text, Since: c.Since.Time(), Until: c.Until.Time(), Message: failed.ID(c.Message)}
	now := time.Now()
	return c.Ask(streams, func(client *api.Client) error {
		return remote.Listing[store.Act]{
			Limit: c.Limit, JSON: c.JSON, None: "no acts", More: true,
			Table: terminal.NewTable([]terminal.Column{
				{Name: "ACT", Right: true},
				{Name: "TIME"},
				{Name: "ACTOR", Least: 12},
				{Name: "ACTION"},
				{Name: "SUBJECT", Least: 8},
				{Name: "MESSAGES", Right: true},
				{Name: "REASON", Least: 20, Ends: true},
			}),
			Fetch: func(p api.Page) ([]store.Act, string, error) {
				page, err := client.Acts(ctx, f, p)
				return page.Acts, page.Next, err
			},
			Cells: func(a store.Act) []string {
				detail := func(name string) string {
					if v, ok := a.Details[name]; ok {
						return fmt.Sprint(v)
					}
					return "-"
				}
				return []string{strconv.FormatInt(a.ID, 10), terminal.Ago(a.Time, now), string(a.Actor), a.Verb, a.Subject, detail("messages"), detail("reason")}
			},
		}.Print(streams)
	})
}
