package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/internal/api"
)

type failedReplaysCmd struct {
	Cancel int64  `placeholder:"ID" help:"Cancel this replay: what has not been sent is failed again."`
	Reason string `placeholder:"TEXT" help:"With --cancel: why, for the record."`
	Limit  int    `default:"20" placeholder:"N" help:"At most so many; 0: all. Default ${default}."`
	JSON   bool   `name:"json" help:"Print JSON, one object in a line."`
	serverFlags
}

// Help shows examples below the flags.
func (failedReplaysCmd) Help() string {
	return `Examples:
  reprise failed replays
  reprise failed replays --cancel 4 --reason 'wrong queue'
`
}

// Run lists replays, or cancels one.
func (c *failedReplaysCmd) Run(ctx context.Context, streams IO) error {
	switch {
	case c.Limit < 0:
		return usagef("--limit %d: give 1 or more, or 0 for all", c.Limit)
	case c.Cancel < 0:
		return usagef("--cancel %d: give the number of a replay, 1 or more", c.Cancel)
	case c.Reason != "" && c.Cancel == 0:
		return usagef("--reason belongs to --cancel ID")
	}
	client, err := c.client(streams)
	if err != nil {
		return err
	}
	out := json.NewEncoder(streams.Stdout)
	if c.Cancel > 0 {
		r, err := cancelReplay(ctx, client, c.Cancel, c.Reason)
		if err != nil {
			return c.asked(err)
		}
		if c.JSON {
			return out.Encode(r)
		}
		_, err = fmt.Fprintln(streams.Stdout, replayText(r))
		return err
	}
	now := time.Now()
	lines := newTable(column{name: "ID", right: true}, column{name: "STATE"}, column{name: "BEGUN"}, column{name: "SENT", right: true},
		column{name: "OF", right: true}, column{name: "REFUSED", right: true, spare: true}, column{name: "BACK", right: true}, column{name: "BY", least: 12}, column{name: "WHY", least: 20, ends: true})
	_, err = pages(c.Limit, func(p api.Page) (string, int, error) {
		page, err := client.Replays(ctx, p)
		if err != nil {
			return "", 0, c.asked(err)
		}
		for _, r := range page.Replays {
			if c.JSON {
				if err := out.Encode(r); err != nil {
					return "", 0, err
				}
				continue
			}
			lines.add(strconv.FormatInt(r.ID, 10), r.State, ago(r.Begun, now), strconv.FormatInt(r.Sent, 10), strconv.FormatInt(r.Total, 10),
				strconv.FormatInt(r.Refused, 10), strconv.FormatInt(r.Back, 10), r.Actor, r.Why)
		}
		return page.Next, len(page.Replays), nil
	})
	if err != nil || c.JSON {
		return err
	}
	if len(lines.rows) == 0 {
		fmt.Fprintln(streams.Stderr, "no replays")
		return nil
	}
	return lines.write(streams.Stdout, tableWidth(streams))
}
