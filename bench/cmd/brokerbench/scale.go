package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/chart"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// A dimension is a quantity that grows during a scenario.
type dimension struct {
	name  string
	sizes []int
	args  func(n int) []string
	deep  bool // n messages are published and not consumed

	metric, title string // of the chart
}

const bytesPerSecond = "mib_per_s"

var dimensions = []dimension{
	{
		name: "queues", sizes: []int{1, 10, 100, 1000}, metric: cpuPerMsg, title: "CPU µs per message",
		args: func(n int) []string { return []string{"-queues", fmt.Sprint(n), "-confirms", "1000", "-transient"} },
	},
	{
		name: "connections", sizes: []int{1, 10, 100, 1000, 4000}, metric: cpuPerMsg, title: "CPU µs per message",
		args: func(n int) []string {
			s := fmt.Sprint(n)
			return []string{"-queues", s, "-connections", s, "-publishers", s, "-consumers", s, "-confirms", "50", "-transient"}
		},
	},
	{
		name: "KiB bodies", sizes: []int{1, 10, 100, 1000, 10_000, 100_000}, metric: bytesPerSecond, title: "MiB per second",
		args: func(n int) []string {
			return []string{"-body", fmt.Sprint(n << 10), "-confirms", fmt.Sprint(min(1000, max(2, 64<<10/n))), "-transient"}
		},
	},
	{
		name: "waiting messages", sizes: []int{10_000, 100_000, 1_000_000, 10_000_000}, metric: cpuPerMsg, title: "CPU µs per message", deep: true,
		args: func(n int) []string {
			return []string{"-count", fmt.Sprint(n), "-consumers", "-1", "-confirms", "1000", "-type", "quorum"}
		},
	},
}

var scaleBrokers = []string{brokers.Reprise, brokers.RabbitMQ, brokers.Null}

var scale = scenario{
	name: "scale",
	text: "Transient messages of 16 B, without acks. Queues: one publisher with 1,000 in flight sends to all of them in turn, one\n" +
		"consumer consumes from all. Connections: each has a publisher with 50 in flight, a consumer, and a queue of its own.\n" +
		"KiB bodies: one publisher, at most 64 MiB in flight. Waiting messages: one publisher fills a quorum\n" +
		"queue with this number of persistent messages, without a consumer.",

	target: "no sudden change",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		var entries []entry
		for _, d := range dimensions {
			for _, n := range d.sizes {
				if d.deep && int64(n) > 10*b.messages {
					continue
				}
				for _, kind := range scaleBrokers {
					if d.deep && kind == brokers.Null {
						continue // stores nothing
					}
					e := entry{
						name: scaleName(kind, n, d.name), kind: kind,
						against: scaleName(brokers.RabbitMQ, n, d.name), limit: scaleName(brokers.Null, n, d.name),
						args: append(d.args(n), "-ack", "auto"),
					}
					e.measure = func(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
						measure := steady
						if d.deep {
							measure = fill
						}
						m, err := measure(ctx, b, e)
						if d.metric == bytesPerSecond && err == nil {
							m[bytesPerSecond] = m[perSecond] * float64(n) / 1024
						}
						return m, err
					}
					entries = append(entries, e)
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
			{Metric: bytesPerSecond, Title: "MiB/s"},
			{Metric: resident, Title: "resident MiB"},
		}
		return t, b.draw(t)
	},
}

// fill measures a broker while the number of messages in a queue grows.
func fill(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	broker, err := b.idleBroker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	m, result, err := b.generate(ctx, broker, e.args, nil)
	if err != nil {
		return nil, err
	}
	m[perSecond] = result.ConfirmedPerSecond
	return m, nil
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
			for _, n := range d.sizes {
				c := t.Contender(scaleName(kind, n, d.name))
				if c == nil || len(c.Rounds) == 0 {
					continue
				}
				line.Points = append(line.Points, chart.Point{X: float64(n), Y: c.Median[d.metric]})
			}
			if len(line.Points) > 0 {
				lines = append(lines, line)
			}
		}
		if err := chart.Draw(filepath.Join(b.svg, "scale-"+strings.ReplaceAll(strings.ToLower(d.name), " ", "-")+".svg"), d.name, d.title, lines); err != nil {
			return err
		}
	}
	return nil
}
