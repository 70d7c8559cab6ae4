package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/report"
	"github.com/reprisemq/reprise/bench/load"
)

// These are the metrics of the scenario start.
const (
	startMedian  = "start_s"
	startSlowest = "start_slowest_s"
)

var start = scenario{
	name: "start",
	text: "A broker with durable messages of 1 KiB (-messages) is stopped, gracefully or by SIGKILL, and started again, three times\n" +
		"a round: from exec until a client has connected and found as many messages in the queue. RabbitMQ's time has in it\n" +
		"what scripts/rabbitmq does before it starts the node, some tenths of a second.",

	target: "2 s or less",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		var entries []entry
		for _, e := range byType("") {
			if e.kind == brokers.Reprise && b.memory {
				continue
			}
			for _, signal := range []string{"SIGTERM", "SIGKILL"} {
				end := brokers.Broker.Stop
				if signal == "SIGKILL" {
					end = brokers.Broker.Kill
				}
				entries = append(entries, entry{
					name: e.name + " " + signal, kind: e.kind, against: e.against + " " + signal, args: e.args,
					measure: func(ctx context.Context, b *bench, e *entry) (report.Metrics, error) { return restart(ctx, b, e, end) },
				})
			}
		}
		t, err := b.rounds(ctx, b.roundsOr(1), entries)
		if err != nil {
			return nil, err
		}
		t.Columns = []report.Column{
			{Metric: startMedian, Title: "seconds, median", Digits: 2, Ratio: true},
			{Metric: startSlowest, Title: "slowest", Digits: 2},
			{Metric: resident, Title: "resident MiB"},
		}
		t.Notes = append(t.Notes, fmt.Sprintf("%d messages", b.messages))
		return t, nil
	},
}

const restarts = 3

func restart(ctx context.Context, b *bench, e *entry, end func(brokers.Broker) error) (report.Metrics, error) {
	if err := b.stopAll(); err != nil {
		return nil, err
	}
	broker, err := b.broker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(e.args), "-url", broker.URL(), "-consumers", "-1", "-keep",
		"-count", fmt.Sprint(b.messages), "-body", "1024", "-confirms", "1000")
	if _, err := b.amqpload(ctx, args, func(load.Event) error { return nil }); err != nil {
		return nil, err
	}
	if err := b.awaitIdle(ctx); err != nil {
		return nil, err
	}
	var times report.Contender
	m := report.Metrics{}
	for range restarts {
		if err := end(broker); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := broker.Start(ctx); err != nil {
			return nil, err
		}
		if err := b.awaitDepth(ctx, broker); err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds()
		times.Add(report.Metrics{startMedian: took})
		m[startSlowest] = max(m[startSlowest], took)
		if err := b.awaitIdle(ctx); err != nil {
			return nil, err
		}
	}
	m[startMedian] = times.Median[startMedian]
	return m, memory(broker, m)
}

// timeout is the maximum time for a broker to start.
const timeout = 2 * time.Minute

// awaitDepth waits until a client finds all messages in the queue.
func (b *bench) awaitDepth(ctx context.Context, broker brokers.Broker) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		n, err := load.Depth(broker.URL(), "bench-0")
		if err == nil && int64(n) == b.messages {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("timed out after %v: queue must have %d messages: got %d (%v)", timeout, b.messages, n, err)
		}
	}
}
