package reportcmd

import (
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/history"
)

// The chart shows the course of an outage, and distinguishes unrecorded intervals from zero.
func TestHistoryText(t *testing.T) {
	start := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	q := api.QueueHistory{Queue: "orders", Rises: []api.Rise{{Text: "Failures rose\x1b."}}}
	for i := range 60 {
		p := api.Interval{Start: start.Add(time.Duration(i) * time.Minute), Recorded: i >= 10}
		p.Succeeded = 10
		switch {
		case i >= 40:
			p.Failures, p.P95 = 48, 2048
		case i >= 35:
			p.Failures = 1
		}
		q.Total.Succeeded, q.Total.Failures = q.Total.Succeeded+p.Succeeded, q.Total.Failures+p.Failures
		q.Points = append(q.Points, p)
	}
	q.Total.P50, q.Total.P95, q.Total.P99 = 0.5, 128, 2048
	h := api.History{Range: "1h", Queues: []api.QueueHistory{q}, Marks: []history.Mark{
		{ID: 3, At: start, Text: "v2.4"}, {ID: 2, At: start, Text: "of others", Queue: "mails"},
	}}
	got := historyText(h, 0)
	want := `QUEUE   SUCCEEDED  FAILURES  P50    P95  P99  FAILURES IN 1H
orders        600       965  1ms  128ms   2s  ···▁▁▁▁▁▁▁▁▂▂▆██████
`
	if got = strings.ReplaceAll(got, "orders: Failures rose .\n", ""); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	one := queueHistoryText(h, 0)
	for _, want := range []string{
		"succeeded  ··········██████████████████████████████████████████████████  600\n",
		"failures   ··········▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▂▂▂▂▂████████████████████  965\n",
		"handled within 1ms (p50), 128ms (p95), 2s (p99)\n", "mark 3 at 2026-03-01 11:00:00 UTC: v2.4\n",
		"\n2026-03-01 11:05         50         0        0       0            -  no\n", "\n2026-03-01 11:40         50       240        0       0           2s  yes\n",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("%q not found in\n%s", want, one)
		}
	}
	if strings.Contains(one+got, "\x1b") || strings.Contains(one, "of others") {
		t.Errorf("text contains an escape sequence or a mark of another queue: %q", one)
	}
	if got := historyText(api.History{}, 0); got != "no history (it is recorded while a console runs)\n" {
		t.Error(got)
	}
	if got := marksText(nil, 0); got != "no marks\n" {
		t.Error(got)
	}
}
