package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
)

type failedLsCmd struct {
	selection   `group:"Selection:"`
	State       string `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"State: failed, replaying, replayed, discarded or all. Default ${default}."`
	Limit       int    `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	Only        bool   `name:"ids" help:"Print the IDs only."`
	JSON        bool   `name:"json" help:"Print JSON, one object per line."`
	serverFlags `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (failedLsCmd) Help() string {
	return `Examples:
  reprise failed ls
  reprise failed ls --queue orders --since 1d --error timeout
  reprise failed ls --text 'customer 4711' -H region=eu
  reprise failed ls --state all --json --limit 0 | jq .error
  reprise failed ls --refused-by 4
  reprise failed ls --state all --sent-by 4 --outcome unknown
  reprise failed ls --group 3 --ids | xargs reprise failed replay
`
}

// Run lists messages.
func (c *failedLsCmd) Run(ctx context.Context, streams IO) error {
	f, err := c.filter(c.State)
	if err != nil {
		return err
	}
	now, detailed := time.Now(), false
	return c.ask(streams, func(client *api.Client) error {
		l := listing[api.Summary]{
			limit: c.Limit, json: c.JSON, none: "no messages", table: newTable(c.columns()...), more: true,
			fetch: func(p api.Page) ([]api.Summary, string, error) {
				page, err := client.Messages(ctx, f, p)
				return page.Messages, page.Next, err
			},
			cells: func(m api.Summary) []string {
				detailed = detailed || m.Detail != ""
				return c.line(m, now)
			},
			drop: func(_ int, column column) bool { return column.name == "DETAIL" && !detailed },
		}
		if c.Only {
			l.each = func(m api.Summary) error {
				_, err := fmt.Fprintln(streams.Stdout, m.ID)
				return err
			}
		}
		return l.print(streams)
	})
}

func (c *failedLsCmd) columns() []column {
	columns := []column{{name: "ID", right: true}, {name: "QUEUE", least: 12}}
	if c.State == "all" {
		columns = append(columns, column{name: "STATE"})
	}
	if c.SentBy != nil {
		columns = append(columns, column{name: "OUTCOME", least: 12})
	}
	columns = append(columns, column{name: "FAILED"}, column{name: "ATTEMPTS", right: true}, column{name: "GROUP", right: true})
	if c.refusals() {
		columns = append(columns, column{name: "NOT SENT", least: 20, ends: true})
	}
	return append(columns, column{name: "DETAIL", least: 20}, column{name: "ERROR", least: 20, ends: true})
}

func (c *failedLsCmd) line(m api.Summary, now time.Time) []string {
	cells := []string{strconv.FormatInt(m.ID, 10), string(m.Queue)}
	if c.State == "all" {
		cells = append(cells, m.State)
	}
	if c.SentBy != nil {
		cells = append(cells, outcomeText(m.Outcome, m.WhyUnknown))
	}
	text := causeLine(m.Error)
	if m.IsEdited {
		text = "(edited) " + text
	}
	cells = append(cells, ago(m.LastFailed, now), strconv.Itoa(m.Attempts), strconv.FormatInt(m.Group, 10))
	if c.refusals() {
		cells = append(cells, m.Refused)
	}
	return append(cells, m.Detail, text)
}

// refusals reports whether the list selects messages that could not be sent. If so, the list shows the reasons.
func (c *failedLsCmd) refusals() bool { return c.Refused || c.RefusedBy != nil }
