package failedcmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

type lsCmd struct {
	selection      `group:"Selection:"`
	State          string `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"State: failed, replaying, replayed, discarded or all. Default ${default}."`
	Limit          int    `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	Only           bool   `name:"ids" help:"Print the IDs only."`
	JSON           bool   `name:"json" help:"Print JSON, one object per line."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (lsCmd) Help() string {
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
func (c *lsCmd) Run(ctx context.Context, streams terminal.IO) error {
	f, err := c.filter(c.State)
	if err != nil {
		return err
	}
	now, detailed := time.Now(), false
	return c.Ask(streams, func(client *api.Client) error {
		l := remote.Listing[api.Summary]{
			Limit: c.Limit, JSON: c.JSON, None: "no messages", Table: terminal.NewTable(c.columns()), More: true,
			Fetch: func(p api.Page) ([]api.Summary, string, error) {
				page, err := client.Messages(ctx, f, p)
				return page.Messages, page.Next, err
			},
			Cells: func(m api.Summary) []string {
				detailed = detailed || m.Detail != ""
				return c.line(m, now)
			},
			Drop: func(_ int, column terminal.Column) bool { return column.Name == "DETAIL" && !detailed },
		}
		if c.Only {
			l.Each = func(m api.Summary) error {
				_, err := fmt.Fprintln(streams.Stdout, m.ID)
				return err
			}
		}
		return l.Print(streams)
	})
}

func (c *lsCmd) columns() []terminal.Column {
	columns := []terminal.Column{{Name: "ID", Right: true}, {Name: "QUEUE", Least: 12}}
	if c.State == "all" {
		columns = append(columns, terminal.Column{Name: "STATE"})
	}
	if c.SentBy != nil {
		columns = append(columns, terminal.Column{Name: "OUTCOME", Least: 12})
	}
	columns = append(columns, terminal.Column{Name: "FAILED"}, terminal.Column{Name: "ATTEMPTS", Right: true}, terminal.Column{Name: "GROUP", Right: true})
	if c.refusals() {
		columns = append(columns, terminal.Column{Name: "NOT SENT", Least: 20, Ends: true})
	}
	return append(columns, terminal.Column{Name: "DETAIL", Least: 20}, terminal.Column{Name: "ERROR", Least: 20, Ends: true})
}

func (c *lsCmd) line(m api.Summary, now time.Time) []string {
	cells := []string{strconv.FormatInt(m.ID, 10), string(m.Queue)}
	if c.State == "all" {
		cells = append(cells, m.State)
	}
	if c.SentBy != nil {
		cells = append(cells, outcomeText(m.Outcome, m.WhyUnknown))
	}
	text := remote.CauseLine(m.Error)
	if m.IsEdited {
		text = "(edited) " + text
	}
	cells = append(cells, terminal.Ago(m.LastFailed, now), strconv.Itoa(m.Attempts), strconv.FormatInt(m.Group, 10))
	if c.refusals() {
		cells = append(cells, m.Refused)
	}
	return append(cells, m.Detail, text)
}

// refusals reports whether the list selects messages that could not be sent. If so, the list shows the reasons.
func (c *lsCmd) refusals() bool { return c.Refused || c.RefusedBy != nil }
