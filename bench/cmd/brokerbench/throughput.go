package main

import (
	"context"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/report"
)

var transient = scenario{
	name: "transient",
	text: "Transient messages of 16 B, no confirms, no acks; 1 publisher, 1 consumer, 1 classic queue.",

	target: "5 × RabbitMQ or more",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		args := []string{"-transient", "-ack", "auto"}
		t, err := b.rounds(ctx, b.roundsOr(5), []entry{
			{name: "reprise", kind: brokers.Reprise, against: "rabbitmq", limit: "null broker", args: args},
			{name: "rabbitmq", kind: brokers.RabbitMQ, against: "rabbitmq", limit: "null broker", args: args},
			{name: "null broker", kind: brokers.Null, against: "rabbitmq", limit: "null broker", args: args},
		})
		if err == nil {
			t.Columns = throughputColumns
		}
		return t, err
	},
}

var persistent = scenario{
	name: "persistent",
	text: "Persistent messages of 1 KiB, 100 in flight, each acked by itself, prefetch 200; 1 publisher, 1 consumer, 1 queue.\n" +
		"The limit is a loop that writes 100 records of 1 KiB and syncs. The null broker stores nothing.",

	target: "quorum queues: 3 × RabbitMQ or more",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		args := []string{"-body", "1024", "-confirms", "100", "-prefetch", "200", "-ack", "each"}
		entries := append(byType("sync loop", args...),
			entry{name: "null broker", kind: brokers.Null, args: args},
			entry{name: "sync loop", kind: fsync, args: []string{"-record", "1024", "-per-sync", "100"}, measure: disk})
		t, err := b.rounds(ctx, b.roundsOr(5), entries)
		if err == nil {
			t.Columns = throughputColumns
		}
		return t, err
	},
}

var throughputColumns = []report.Column{
	{Metric: perSecond, Title: "messages/s", Ratio: true, Share: true},
	{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 2},
	{Metric: calls, Title: "reads and writes/message", Digits: 3},
	{Metric: switches, Title: "thread switches/message", Digits: 3},
	{Metric: p50, Title: "p50 µs"},
	{Metric: p99, Title: "p99 µs"},
	{Metric: resident, Title: "resident MiB"},
	{Metric: peak, Title: "peak MiB"},
}

var latency = scenario{
	name: "latency",
	text: "2,000 persistent messages of 1 KiB a second, evenly spaced, confirmed, each acked by itself: from publish to delivery.",

	target: "half of RabbitMQ's or less",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		args := []string{"-body", "1024", "-confirms", "1000", "-prefetch", "200", "-ack", "each", "-rate", "2000"}
		entries := append(byType("null broker", args...), entry{name: "null broker", kind: brokers.Null, args: args})
		t, err := b.rounds(ctx, b.roundsOr(5), entries)
		if err == nil {
			t.Columns = []report.Column{
				{Metric: p50, Title: "p50 µs", Ratio: true},
				{Metric: p99, Title: "p99 µs", Ratio: true},
				{Metric: p999, Title: "p99.9 µs"},
				{Metric: worst, Title: "max µs"},
				{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 1},
				{Metric: perSecond, Title: "messages/s"},
			}
		}
		return t, err
	},
}
