package report_test

import (
	"strings"
	"testing"

	"github.com/reprisemq/reprise/bench/internal/report"
)

func contender(name, against, limit string, rates ...float64) *report.Contender {
	c := &report.Contender{Name: name, Against: against, Limit: limit}
	for _, r := range rates {
		c.Add(report.Metrics{"rate": r})
	}
	return c
}

func TestTableContainsMediansRatiosAndShares(t *testing.T) {
	table := &report.Table{
		Name: "speed", Text: "How fast.", Columns: []report.Column{{Metric: "rate", Title: "messages/s", Ratio: true, Share: true}},
		Contenders: []*report.Contender{
			contender("ours", "theirs", "the limit", 3000, 1_234_567, 1000),
			contender("theirs", "theirs", "the limit", 1000, 2000),
			contender("the limit", "", "", 6000),
			contender("broken", "theirs", "the limit"),
		},
	}
	table.Contenders[3].Failed = "it lost messages"
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `
### speed

How fast.

| broker    |     rounds | messages/s | spread | × RabbitMQ | of the limit |
|-----------|-----------:|-----------:|-------:|-----------:|-------------:|
| ours      |          3 |      3,000 | 41119% |       2.00 |          50% |
| theirs    |          2 |      1,500 |    67% |       1.00 |          25% |
| the limit |          1 |      6,000 |      – |          – |            – |
| broken    | 0 (failed) |          – |      – |          – |            – |
`
	if got := b.String(); got != want {
		t.Errorf("table: got\n%s\nwant\n%s", got, want)
	}
}
