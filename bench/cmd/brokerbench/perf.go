package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
	"github.com/reprisemq/reprise/bench/internal/report"
	"github.com/reprisemq/reprise/bench/load"
)

// perfRow is a load of lavinmqperf.
type perfRow struct {
	name, args string
	deliveries bool   // count deliveries, not published messages
	before     string // arguments of a load that fills the queue; the row then takes one second, and must not empty it
}

const (
	perfQueue  = "perf-test" // default of lavinmqperf
	delivered  = "delivered_per_s"
	persists   = "-s 1024 -p -c 100 -P 200"
	quorumType = ` --queue-args {"x-queue-type":"quorum"}`
	fiftyPairs = " -x 50 -y 50 --queue-pattern q-% --queue-pattern-to 50"
)

var perfRows = []perfRow{
	{name: "transient", args: "-s 16"},
	{name: "classic", args: persists + " -a 1"},
	{name: "quorum", args: persists + " -a 1" + quorumType},
	{name: "quorum, acks of 50", args: persists + " -a 50" + quorumType},
	{name: "latency", args: "-s 1024 -p -c 1 -P 200 -a 1 -r 2000 -l"},
	{name: "50 queues", args: persists + " -a 50" + quorumType + fiftyPairs},
	{name: "10 consumers", args: persists + " -a 1 -y 10"},
	{name: "fan-out", args: "-s 16 -e amq.fanout -y 10 --queue-pattern q-% --queue-pattern-to 10", deliveries: true},
	{name: "flood", args: "-s 16" + fiftyPairs},
	{name: "fill", args: "-s 1024 -p -c 500 -R 1 -P 1 -a 1"},
	// A consumer of one message declares the queue that is filled.
	{name: "drain", args: "-x 0 -P 200 -a 50", deliveries: true, before: "-s 1024 -p -c 5000 -C 1000000 -P 1 -a 1 -D 1"},
}

var perf = scenario{
	name: "perf",
	text: "Loads of lavinmqperf, the generator of LavinMQ, each on an empty broker; cmd/brokerbench/perf.go contains its arguments.\n" +
		"The latency begins when a message is published. CPU includes the declaration of the queues.",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		if _, err := brokers.Program("lavinmqperf"); err != nil {
			return &report.Table{Notes: []string{"Not measured: " + err.Error()}}, nil
		}
		_, missing := brokers.Program(brokers.LavinMQ)
		if missing != nil && b.chosen && slices.Contains(b.brokers, brokers.LavinMQ) {
			return nil, missing
		}
		var entries []entry
		for _, row := range perfRows {
			for _, kind := range []string{brokers.Reprise, brokers.RabbitMQ, brokers.LavinMQ} {
				if kind == brokers.LavinMQ && missing != nil {
					continue
				}
				entries = append(entries, entry{
					name: kind + ", " + row.name, kind: kind, against: brokers.LavinMQ + ", " + row.name, measure: row.measure,
				})
			}
		}
		t, err := b.rounds(ctx, b.roundsOr(3), entries)
		if err != nil {
			return nil, err
		}
		if missing != nil {
			t.Notes = append(t.Notes, "Without LavinMQ: "+missing.Error())
		}
		t.Base = "× LavinMQ"
		t.Columns = []report.Column{
			{Metric: perSecond, Title: "messages/s", Ratio: true},
			{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 2, Ratio: true},
			{Metric: delivered, Title: "delivered/s"},
			{Metric: p50, Title: "p50 µs"},
			{Metric: p99, Title: "p99 µs"},
			{Metric: peak, Title: "peak MiB"},
		}
		return t, nil
	},
}

// measure puts the load on an empty broker, because the messages of an earlier load would change the result.
func (r perfRow) measure(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	if err := b.stopAll(); err != nil {
		return nil, err
	}
	broker, err := b.broker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	// lavinmqperf accepts whole seconds, and starts to count before its clients connect.
	args := fmt.Sprintf("%s -z %.0f", r.args, math.Ceil(b.durationOr(4*time.Second).Seconds()))
	if r.before != "" {
		args = r.args + " -z 1"
		if _, err := b.lavinmqperf(ctx, broker, r.before); err != nil {
			return nil, err
		}
	}
	syscall.Sync() // otherwise, LavinMQ's syncfs would also write what earlier contenders and the previous load left in the page cache
	if err := b.awaitIdle(ctx); err != nil {
		return nil, err
	}
	if err := proc.ResetPeak(broker.PID()); err != nil {
		return nil, err
	}
	before, err := usageOf(broker)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	result, err := b.lavinmqperf(ctx, broker, args)
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := usageOf(broker)
	if err != nil {
		return nil, err
	}
	m := report.Metrics{perSecond: result.Published, delivered: result.Delivered}
	if r.deliveries {
		m[perSecond] = result.Delivered
	}
	if m[perSecond] == 0 {
		return nil, errors.New("no messages (increase -duration)")
	}
	if r.before != "" {
		n, err := load.Depth(broker.URL(), perfQueue)
		if err == nil && n == 0 {
			err = errors.New("queue became empty during the measurement")
		}
		if err != nil {
			return nil, err
		}
	}
	after.report(m, before, m[perSecond]*result.Seconds, result.cpuSeconds, took.Seconds())
	if result.P99 > 0 {
		m[p50], m[p99] = result.P50*1000, result.P99*1000
	}
	return m, memory(broker, m)
}

// perfResult is the summary of lavinmqperf. Its latencies are milliseconds.
type perfResult struct {
	Seconds   float64 `json:"elapsed_seconds"`
	Published float64 `json:"avg_pub_rate"`
	Delivered float64 `json:"avg_consume_rate"`
	P50       float64 `json:"latency_median_ms"`
	P99       float64 `json:"latency_p99_ms"`

	cpuSeconds float64 // processor time of lavinmqperf
}

// lavinmqperf runs the generator. It fails if a broker does not accept the load within the timeout.
func (b *bench) lavinmqperf(ctx context.Context, broker brokers.Broker, args string) (perfResult, error) {
	program, err := brokers.Program("lavinmqperf")
	if err != nil {
		return perfResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+b.duration)
	defer cancel()
	cmd := exec.CommandContext(ctx, program,
		append([]string{"amqp", "throughput", "-j", "-q", "--uri", broker.URL()}, strings.Fields(args)...)...)
	out, err := cmd.CombinedOutput()
	result, problem := parsePerf(out)
	if err = errors.Join(err, problem); err != nil {
		return result, fmt.Errorf("lavinmqperf: %w: %.300s", err, bytes.TrimSpace(out))
	}
	result.cpuSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return result, nil
}

// parsePerf finds the summary in the output of lavinmqperf, which can contain errors of its connections on the same line.
func parsePerf(out []byte) (r perfResult, err error) {
	i := bytes.Index(out, []byte(`{"elapsed_seconds"`))
	if i < 0 {
		return r, errors.New("summary not found")
	}
	return r, json.NewDecoder(bytes.NewReader(out[i:])).Decode(&r)
}
