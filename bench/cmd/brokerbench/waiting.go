package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/bench/internal/proc"
	"github.com/reprisemq/reprise/bench/internal/report"
	"github.com/reprisemq/reprise/bench/load"
)

// These are the metrics of the scenario waiting.
const (
	emptyMiB    = "empty_mib"
	waitingMiB  = "waiting_mib"
	publishPeak = "publish_peak_mib"
	lateP50     = "late_p50_ms"
	lateP99     = "late_p99_ms"
	lateMax     = "late_max_ms"
	lateCount   = "late_50ms"
	earlyCount  = "early"
	publishRate = "published_per_s"
)

var waiting = scenario{
	name: "waiting",
	text: "Persistent messages of 1 KiB wait in a queue with a time to live, all of them at once (-messages), and are then\n" +
		"dead-lettered into a second queue and consumed, as evenly as they were published (-rate). How late each comes is\n" +
		"counted from when it was published, by the generator's clock. Each round has a broker of its own.",

	target: "1 M waiting: 100 MB or less; 10 M: 300 MB or less",
	run: func(ctx context.Context, b *bench) (*report.Table, error) {
		entries := byType("")
		for i := range entries {
			entries[i].measure = wait
		}
		t, err := b.rounds(ctx, b.roundsOr(1), entries)
		if err != nil {
			return nil, err
		}
		t.Columns = []report.Column{
			{Metric: waitingMiB, Title: "MiB while they wait", Ratio: true},
			{Metric: emptyMiB, Title: "before"},
			{Metric: publishPeak, Title: "peak, publishing"},
			{Metric: peak, Title: "peak, all"},
			{Metric: lateP50, Title: "late p50 ms", Digits: 2},
			{Metric: lateP99, Title: "p99 ms", Digits: 2},
			{Metric: lateMax, Title: "max ms", Digits: 1},
			{Metric: lateCount, Title: "> 50 ms"},
			{Metric: earlyCount, Title: "early"},
			{Metric: publishRate, Title: "published/s"},
			{Metric: cpuPerMsg, Title: "CPU µs/message", Digits: 1},
		}
		t.Notes = append(t.Notes, fmt.Sprintf("%d messages, published at %.0f/s, time to live %v", b.messages, b.rate, b.timeToLive()))
		return t, nil
	},
}

// settle is the time from the last publish to the measurement of the broker's memory.
const settle = 5 * time.Second

// timeToLive returns a TTL that is long enough to publish all messages and to measure the memory before the first message
// expires, even if the rate is a tenth below the requested rate.
func (b *bench) timeToLive() time.Duration {
	publishing := time.Duration(float64(b.messages) / b.rate * 1.1 * float64(time.Second))
	return (publishing + 2*settle).Round(time.Second)
}

func wait(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	if err := b.stopAll(); err != nil {
		return nil, err
	}
	broker, err := b.idleBroker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	empty, err := proc.MemoryOf(broker.PID())
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(e.args),
		"-count", fmt.Sprint(b.messages), "-rate", fmt.Sprint(b.rate), "-ttl", b.timeToLive().String(),
		"-body", "1024", "-confirms", "2000", "-prefetch", "1000", "-ack", "each")
	began := time.Now()
	m, result, err := b.generate(ctx, broker, args, func(event load.Event, m report.Metrics) error {
		if event != load.Published {
			return nil
		}
		if took := time.Since(began); took > b.timeToLive()-settle {
			return fmt.Errorf("first messages expired before the last publish, after %v (set a lower -rate)", took)
		}
		time.Sleep(settle)
		now, err := proc.MemoryOf(broker.PID())
		m[waitingMiB], m[publishPeak] = float64(now.Resident)/mebibyte, float64(now.Peak)/mebibyte
		return err
	})
	if err != nil {
		return nil, err
	}
	m[emptyMiB] = float64(empty.Resident) / mebibyte
	m[publishRate] = result.PublishedPerSecond
	late := result.Lateness
	m[lateP50], m[lateP99], m[lateMax] = late.P50/1e3, late.P99/1e3, late.Max/1e3
	m[lateCount], m[earlyCount] = float64(late.Late), float64(late.Early)
	return m, nil
}
