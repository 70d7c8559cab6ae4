package cli

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

type failedGroupsCmd struct {
	Queue       *string `placeholder:"NAME" help:"Work queue."`
	State       string  `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"State of the messages: failed, replaying, replayed, discarded or all. Default ${default}."`
	Text        *string `placeholder:"TEXT" help:"Part of the pattern of the errors."`
	Order       string  `enum:"latest,most" default:"most" placeholder:"ORDER" help:"Order: most (by number of messages) or latest (by latest failure). Default ${default}."`
	Limit       int     `default:"50" placeholder:"N" help:"Maximum number of entries, 0 for all. Default ${default}."`
	JSON        bool    `name:"json" help:"Print JSON, one object per line."`
	serverFlags `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (failedGroupsCmd) Help() string {
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
func (c *failedGroupsCmd) Run(ctx context.Context, streams IO) error {
	f := api.GroupFilter{State: c.State}
	var queue string
	if err := cmp.Or(given("queue", c.Queue, &queue), given("text", c.Text, &f.Text)); err != nil {
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
	return c.ask(streams, func(client *api.Client) error {
		return listing[api.Group]{
			limit: c.Limit, json: c.JSON, none: "no groups", more: true,
			table: newTable(column{name: "GROUP", right: true}, column{name: "QUEUE", least: 12}, column{name: "FAILED", right: true},
				column{name: "ALL", right: true}, column{name: "FIRST"}, column{name: "LAST"}, column{name: "TREND"}, column{name: "ERROR", least: 20, ends: true}),
			drop: func(_ int, column column) bool { return column.name == "FIRST" && width > 0 && width < 100 },
			fetch: func(p api.Page) ([]api.Group, string, error) {
				page, err := client.Groups(ctx, f, p)
				return page.Groups, page.Next, err
			},
			cells: func(g api.Group) []string {
				n := g.Counts
				return []string{
					strconv.FormatInt(g.ID, 10), string(g.Queue), strconv.FormatInt(n.Failed, 10),
					strconv.FormatInt(n.Failed+n.Replaying+n.Replayed+n.Discarded, 10), ago(g.First, now), ago(g.Last, now),
					trend(g.Hours, 12), cmp.Or(g.Text, "(no error is known)"),
				}
			},
		}.print(streams)
	})
}

var bars = []rune("▁▂▃▄▅▆▇█")

// trend draws at most width bars. An empty bucket is a dot.
func trend(buckets []failed.Bucket, width int) string {
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
