package reportcmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
)

// History is reprise history.
type History struct {
	Queue          string `arg:"" optional:"" help:"Work queue. Default: one line for each queue."`
	For            string `default:"24h" enum:"1h,24h,7d" placeholder:"RANGE" help:"Range: 1h (in minutes), 24h (in 5 minutes) or 7d (in hours). Default ${default}."`
	JSON           bool   `name:"json" help:"Print JSON, with all intervals."`
	remote.Console `group:"Console:"`
}

// Help implements kong.HelpProvider.
func (History) Help() string {
	return `Counts processed messages and failures, and shows handling times and rises of failures. The number of
failures is the larger of two numbers: the failed attempts that workers reported, and the messages that entered the
archive. Handling times are upper bounds, at most twice the measured time. A dot in a line of bars is an unrecorded
period. Times are in UTC. The command needs a running console: reprise console, or reprise up with console: in its
file.

Examples:
  reprise history
  reprise history orders --for 1h
  reprise history orders --for 7d --json
`
}

// Run shows the history.
func (c *History) Run(ctx context.Context, streams terminal.IO) error {
	return c.Ask(streams, func(client *api.Client) error {
		h, err := client.History(ctx, c.Queue, c.For)
		if err != nil {
			return err
		}
		text := historyText(h, streams.Width())
		if c.Queue != "" {
			text = queueHistoryText(h, streams.Width())
		}
		return streams.Result(c.JSON, h, text)
	})
}

// historyText formats a line for each queue, with the latest rise of its failures.
func historyText(h api.History, width int) string {
	if len(h.Queues) == 0 {
		return "no history (it is recorded while a console runs)\n"
	}
	table := terminal.NewTable([]terminal.Column{
		{Name: "QUEUE", Least: 12},
		{Name: "SUCCEEDED", Right: true},
		{Name: "FAILURES", Right: true},
		{Name: "P50", Right: true},
		{Name: "P95", Right: true},
		{Name: "P99", Right: true},
		{Name: "FAILURES IN " + strings.ToUpper(h.Range)},
	})
	var notes []string
	for _, q := range h.Queues {
		table.Add(string(q.Queue), count(q.Total.Succeeded), count(q.Total.Failures), tookText(q.Total.P50), tookText(q.Total.P95), tookText(q.Total.P99),
			spark(q.Points, failures, 24))
		if len(q.Rises) > 0 {
			notes = append(notes, terminal.OneLine(string(q.Queue))+": "+terminal.OneLine(q.Rises[0].Text))
		}
	}
	var b strings.Builder
	b.WriteString(table.Text(width))
	for _, n := range notes {
		b.WriteString(n + "\n")
	}
	return b.String()
}

// queueHistoryText formats the history of one queue: bars, a table and sentences.
func queueHistoryText(h api.History, width int) string {
	q := h.Queues[0]
	var b strings.Builder
	fmt.Fprintf(&b, "succeeded  %s  %d\n", spark(q.Points, succeeded, 60), q.Total.Succeeded)
	fmt.Fprintf(&b, "failures   %s  %d\n", spark(q.Points, failures, 60), q.Total.Failures)
	if q.Total.P50 > 0 {
		fmt.Fprintf(&b, "handled within %s (p50), %s (p95), %s (p99)\n", tookText(q.Total.P50), tookText(q.Total.P95), tookText(q.Total.P99))
	}
	for _, r := range q.Rises {
		b.WriteString(terminal.OneLine(r.Text) + "\n")
	}
	for _, m := range h.Marks {
		if m.Queue == "" || m.Queue == q.Queue {
			fmt.Fprintf(&b, "mark %d at %s: %s\n", m.ID, sampled(m.At), terminal.OneLine(m.Text))
		}
	}
	table := terminal.NewTable([]terminal.Column{
		{Name: "FROM (UTC)"},
		{Name: "SUCCEEDED", Right: true},
		{Name: "FAILURES", Right: true},
		{Name: "RETRIED", Right: true},
		{Name: "PARKED", Right: true},
		{Name: "HIGHEST P95", Right: true},
		{Name: "RECORDED"},
	})
	for part := range slices.Chunk(q.Points, rowsOf[h.Range]) {
		var sum api.Activity
		recorded := 0
		for _, p := range part {
			sum.Succeeded += p.Succeeded
			sum.Failures += p.Failures
			sum.Retried += p.Retried
			sum.Parked += p.Parked
			sum.P95 = max(sum.P95, p.P95)
			if p.Recorded {
				recorded++
			}
		}
		whole := "yes"
		switch recorded {
		case 0:
			whole = "no"
		case len(part):
		default:
			whole = "partly"
		}
		table.Add(part[0].Start.UTC().Format("2006-01-02 15:04"), count(sum.Succeeded), count(sum.Failures), count(sum.Retried), count(sum.Parked), tookText(sum.P95), whole)
	}
	return b.String() + "\n" + table.Text(width)
}

// rowsOf contains the number of intervals in a row of the table, by time range. A row covers 5 minutes, 1 hour or 12 hours.
var rowsOf = map[string]int{"1h": 5, "24h": 12, "7d": 12}

func succeeded(p api.Interval) uint64 { return p.Succeeded }

func failures(p api.Interval) uint64 { return p.Failures }

func count(n uint64) string { return strconv.FormatUint(n, 10) }

// tookText formats milliseconds.
func tookText(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 1:
		return "1ms"
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	case ms < 60_000:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", ms/1000), ".0") + "s"
	}
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Minute).String()
}

// spark draws a bar for each interval. The argument most limits the number of bars. If there are more intervals,
// spark combines them. An unrecorded interval is a dot.
func spark(points []api.Interval, of func(api.Interval) uint64, most int) string {
	var sums []uint64
	var recorded []bool
	highest := uint64(1)
	for part := range slices.Chunk(points, (len(points)+most-1)/most) {
		var sum uint64
		for _, p := range part {
			sum += of(p)
		}
		sums = append(sums, sum)
		recorded = append(recorded, slices.ContainsFunc(part, func(p api.Interval) bool { return p.Recorded }))
		highest = max(highest, sum)
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	var b strings.Builder
	for i, n := range sums {
		switch {
		case !recorded[i]:
			b.WriteRune('·')
		case n == 0:
			b.WriteRune(bars[0])
		default:
			b.WriteRune(bars[1+int(float64(n)/float64(highest)*float64(len(bars)-2)+0.5)])
		}
	}
	return b.String()
}
