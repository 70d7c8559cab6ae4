package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/chart"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// A dimension is a quantity that grows during a scenario.
type dimension struct {
	name string
	args func(n string) []string
}

var dimensions = []dimension{
	{"queues", func(n string) []string { return []string{"-queues", n, "-confirms", "1000"} }},
	{"connections", func(n string) []string {
		return []string{"-queues", n, "-connections", n, "-publishers", n, "-consumers", n, "-confirms", "50"}
	}},
}

var sizes = []int{1, 10, 100, 1000}

var scaleBrokers = []string{brokers.Reprise, brokers.RabbitMQ, brokers.Null}

var scale = scenario{
	name: "scale",
	text: "Transient messages of 16 B, without acks. Queues: one publisher with 1,000 in flight sends to all of them in turn, one\n" +
		"consumer consumes from all. Connections: each has a publisher with 50 in flight, a consumer, and a queue of its own.",

	target: "the same cost per message from 1 to 1,000",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		var entries []entry
		for _, d := range dimensions {
			for _, n := range sizes {
				for _, kind := range scaleBrokers {
					entries = append(entries, entry{
						name: scaleName(kind, n, d.name), kind: kind,
						against: scaleName(brokers.RabbitMQ, n, d.name), limit: scaleName(brokers.Null, n, d.name),
						args: append(d.args(strconv.Itoa(n)), "-transient", "-ack", "auto"),
					})
				}
			}
		}
		t, err := b.rounds(ctx, b.roundsOr(3), entries)
		if err != nil {
			return nil, err
		}
		t.Columns = []report.Column{
			{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 2, Ratio: true},
			{Metric: perSecond, Title: "messages/s", Ratio: true, Share: true},
			{Metric: resident, Title: "resident MiB"},
		}
		return t, b.draw(t)
	},
}

func scaleName(kind string, n int, of string) string { return fmt.Sprintf("%s, %d %s", kind, n, of) }

// draw writes a chart for each dimension.
func (b *bench) draw(t *report.Table) error {
	if b.svg == "" {
		return nil
	}
	for _, d := range dimensions {
		var lines []chart.Line
		for _, kind := range scaleBrokers {
			line := chart.Line{Name: kind}
			for _, n := range sizes {
				c := t.Contender(scaleName(kind, n, d.name))
				if c == nil || len(c.Rounds) == 0 {
					continue
				}
				line.Points = append(line.Points, chart.Point{X: float64(n), Y: c.Median[cpuPerMsg]})
			}
			if len(line.Points) > 0 {
				lines = append(lines, line)
			}
		}
		if err := chart.Draw(filepath.Join(b.svg, "scale-"+d.name+".svg"), d.name, "CPU µs per message", lines); err != nil {
			return err
		}
	}
	return nil
}
