package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/api"
)

type failedGroupsCmd struct {
	Queue *string `placeholder:"NAME" help:"Of this work queue."`
	State string  `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"With messages in this state: failed, replaying, replayed, discarded or all. Default ${default}."`
	Text  *string `placeholder:"TEXT" help:"With this text in what the errors have in common."`
	Order string  `enum:"latest,most" default:"most" placeholder:"ORDER" help:"most: the most failed messages first. latest: the latest failure first. Default ${default}."`
	Limit int     `default:"50" placeholder:"N" help:"At most so many; 0: all. Default ${default}."`
	JSON  bool    `name:"json" help:"Print JSON, one object in a line."`
	serverFlags
}

// Help shows examples below the flags.
func (failedGroupsCmd) Help() string {
	return `A group is the failures of a queue whose errors are alike but for numbers, ids, addresses and times.
TREND is the last 24 hours, one bar for each two.

Examples:
  reprise failed groups
  reprise failed groups --queue orders --order latest
  reprise failed groups --json | jq -r '[.counts.failed, .text] | @tsv'
`
}

// Run lists groups.
func (c *failedGroupsCmd) Run(ctx context.Context, streams IO) error {
	if c.Limit < 0 {
		return usagef("--limit %d: give 1 or more, or 0 for all", c.Limit)
	}
	client, err := c.client(streams)
	if err != nil {
		return err
	}
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
	now, width := time.Now(), tableWidth(streams)
	lines := newTable(column{name: "GROUP", right: true}, column{name: "QUEUE", least: 12}, column{name: "FAILED", right: true},
		column{name: "ALL", right: true}, column{name: "FIRST"}, column{name: "LAST"}, column{name: "TREND"}, column{name: "ERROR", least: 20, ends: true})
	out := json.NewEncoder(streams.Stdout)
	more, err := pages(c.Limit, func(p api.Page) (string, int, error) {
		page, err := client.Groups(ctx, f, p)
		if err != nil {
			return "", 0, c.asked(err)
		}
		for _, g := range page.Groups {
			if c.JSON {
				if err := out.Encode(g); err != nil {
					return "", 0, err
				}
				continue
			}
			n := g.Counts
			lines.add(strconv.FormatInt(g.ID, 10), string(g.Queue), strconv.FormatInt(n.Failed, 10),
				strconv.FormatInt(n.Failed+n.Replaying+n.Replayed+n.Discarded, 10), ago(g.First, now), ago(g.Last, now),
				trend(g.Hours, 12), cmp.Or(g.Text, "(no error is known)"))
		}
		return page.Next, len(page.Groups), nil
	})
	if err != nil || c.JSON {
		return err
	}
	if width > 0 && width < 100 {
		lines = lines.without(func(_ int, c column) bool { return c.name == "FIRST" })
	}
	if len(lines.rows) == 0 {
		fmt.Fprintln(streams.Stderr, "no groups")
		return nil
	}
	if err := lines.write(streams.Stdout, width); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(streams.Stderr, "there are more: --limit %d shows twice as many, --limit 0 all\n", 2*c.Limit)
	}
	return nil
}

var bars = []rune("▁▂▃▄▅▆▇█")

// trend draws numbers as so many bars; one without any is a point.
func trend(buckets []api.Bucket, width int) string {
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
