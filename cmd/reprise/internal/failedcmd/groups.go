package failedcmd

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/store"
)

type groupsCmd struct {
	Queue          *string `placeholder:"NAME" help:"Work queue."`
	State          string  `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"State of the messages: failed, replaying, replayed, discarded or all. Default ${default}."`
	Text           *string `placeholder:"TEXT" help:"Part of the pattern of the errors."`
	Order          string  `enum:"latest,most" default:"most" placeholder:"ORDER" help:"Order: most (by number of messages) or latest (by latest failure). Default ${default}."`
	Limit          int     `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON           bool    `name:"json" help:"Print JSON, one object per line."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (groupsCmd) Help() string {
	return `A group contains the failures of one queue whose errors differ only in numbers, IDs, addresses and times.
Different exit codes, HTTP statuses, SQLSTATEs and error codes are different groups. TREND shows the last 24 hours,
two hours per bar.

Examples:
  reprise failed groups
  reprise failed groups --queue orders --order latest
  reprise failed groups --json | jq -r '[.counts.failed, .text] | @tsv'
`
}

// Run lists groups.
func (c *groupsCmd) Run(ctx context.Context, streams terminal.IO) error {
	f := api.GroupFilter{State: c.State}
	var queue string
	if err := cmp.Or(flags.Given("queue", c.Queue, &queue), flags.Given("text", c.Text, &f.Text)); err != nil {
		return err
	}
	f.Queue = api.Text(queue)
	if c.State == "all" {
		f.State = ""
	}
	if c.Order == "most" {
		f.Order = "failed"
	}
	now, width := time.Now(), streams.Width()
	return c.Ask(streams, func(client *api.Client) error {
		return remote.Listing[store.Group]{
			Limit: c.Limit, JSON: c.JSON, None: "no groups", More: true,
			Table: terminal.NewTable([]terminal.Column{
				{Name: "GROUP", Right: true},
				{Name: "QUEUE", Least: 12},
				{Name: "FAILED", Right: true},
				{Name: "ALL", Right: true},
				{Name: "FIRST"},
				{Name: "LAST"},
				{Name: "TREND"},
				{Name: "ERROR", Least: 20, Ends: true},
			}),
			Drop: func(_ int, column terminal.Column) bool { return column.Name == "FIRST" && width > 0 && width < 100 },
			Fetch: func(p api.Page) ([]store.Group, string, error) {
				page, err := client.Groups(ctx, f, p)
				return page.Groups, page.Next, err
			},
			Cells: func(g store.Group) []string {
				n := g.Counts
				return []string{
					strconv.FormatInt(int64(g.ID), 10), string(g.Queue), strconv.FormatInt(n.Failed, 10),
					strconv.FormatInt(n.Failed+n.Replaying+n.Replayed+n.Discarded, 10), terminal.Ago(g.First, now), terminal.Ago(g.Last, now),
					trend(g.Hours, 12), cmp.Or(g.Text, "(no error is known)"),
				}
			},
		}.Print(streams)
	})
}

var bars = []rune("▁▂▃▄▅▆▇█")

// trend draws at most width bars. An empty bucket is a dot.
func trend(buckets []store.Bucket, width int) string {
	if len(buckets) == 0 {
		return ""
	}
	sums := make([]int64, min(width, len(buckets)))
	var most int64
	for i, b := range buckets {
		at := i * len(sums) / len(buckets)
		sums[at] += b.N
		most = max(most, sums[at])
	}
	var s strings.Builder
	for _, n := range sums {
		if n == 0 {
			s.WriteRune('·')
			continue
		}
		s.WriteRune(bars[int(n*int64(len(bars)-1)/most)])
	}
	return s.String()
}
