package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

type failedLsCmd struct {
	selection
	State string `enum:"failed,replaying,replayed,discarded,all" default:"failed" placeholder:"STATE" help:"failed, replaying, replayed, discarded or all. Default ${default}."`
	Limit int    `default:"50" placeholder:"N" help:"At most so many; 0: all. Default ${default}."`
	Only  bool   `name:"ids" help:"Print their numbers only."`
	JSON  bool   `name:"json" help:"Print JSON, one object in a line."`
	serverFlags
}

// Help shows examples below the flags.
func (failedLsCmd) Help() string {
	return `Examples:
  reprise failed ls
  reprise failed ls --queue orders --since 1d --error timeout
  reprise failed ls --text 'customer 4711' -H region=eu
  reprise failed ls --state all --json --limit 0 | jq .error
  reprise failed ls --refused-by 4
  reprise failed ls --group 3 --ids | xargs reprise failed replay
`
}

// Run lists messages.
func (c *failedLsCmd) Run(ctx context.Context, streams IO) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	if c.Limit < 0 {
		return usagef("--limit %d: give 1 or more, or 0 for all", c.Limit)
	}
	if c.State != "all" {
		f.States = []failed.State{failed.State(c.State)}
	}
	client, err := c.client(streams)
	if err != nil {
		return err
	}
	now := time.Now()
	lines := newTable(c.columns()...)
	out := json.NewEncoder(streams.Stdout)
	more, err := pages(c.Limit, func(p api.Page) (string, int, error) {
		page, err := client.Messages(ctx, f, p)
		if err != nil {
			return "", 0, c.asked(err)
		}
		for _, m := range page.Messages {
			switch {
			case c.JSON:
				err = out.Encode(m)
			case c.Only:
				_, err = fmt.Fprintln(streams.Stdout, m.ID)
			default:
				lines.add(c.line(m, now)...)
			}
			if err != nil {
				return "", 0, err
			}
		}
		return page.Next, len(page.Messages), nil
	})
	if err != nil || c.JSON || c.Only {
		return err
	}
	if len(lines.rows) == 0 {
		fmt.Fprintln(streams.Stderr, "no messages")
		return nil
	}
	if err := lines.write(streams.Stdout, tableWidth(streams)); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(streams.Stderr, "there are more: --limit %d shows twice as many, --limit 0 all\n", 2*c.Limit)
	}
	return nil
}

func (c *failedLsCmd) columns() []column {
	columns := []column{{name: "ID", right: true}, {name: "QUEUE", least: 12}}
	if c.State == "all" {
		columns = append(columns, column{name: "STATE"})
	}
	columns = append(columns, column{name: "FAILED"}, column{name: "ATTEMPTS", right: true}, column{name: "GROUP", right: true})
	if c.refusals() {
		columns = append(columns, column{name: "NOT SENT", least: 20, ends: true})
	}
	return append(columns, column{name: "ERROR", least: 20, ends: true})
}

func (c *failedLsCmd) line(m api.Summary, now time.Time) []string {
	cells := []string{strconv.FormatInt(m.ID, 10), string(m.Queue)}
	if c.State == "all" {
		cells = append(cells, m.State)
	}
	text := m.Error
	if m.IsEdited {
		text = "(edited) " + text
	}
	cells = append(cells, ago(m.LastFailed, now), strconv.Itoa(m.Attempts), strconv.FormatInt(m.Group, 10))
	if c.refusals() {
		cells = append(cells, m.Refused)
	}
	return append(cells, text)
}

// refusals reports whether it is asked for what could not be sent, and so for why.
func (c *failedLsCmd) refusals() bool { return c.Refused || c.RefusedBy != nil }

// pageSize is how much is asked for at once.
const pageSize = 500

// pages asks for page after page until there are as many as limit, or no more; 0 is
// no limit. It returns whether there would be more.
func pages(limit int, get func(api.Page) (next string, n int, err error)) (more bool, err error) {
	after := ""
	for shown := 0; ; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-shown)
		}
		next, n, err := get(api.Page{After: after, Size: size})
		if err != nil {
			return false, err
		}
		shown, after = shown+n, next
		if next == "" || limit > 0 && shown >= limit {
			return next != "", nil
		}
	}
}
