package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// fsync is the kind of the contender that measures the disk instead of a broker.
const fsync = "fsync"

// entry is a contender in a scenario.
type entry struct {
	name, kind     string
	against, limit string
	args           []string // arguments of amqpload or fsyncloop
	measure        func(context.Context, *bench, *entry) (report.Metrics, error)
}

// rounds measures the entries in turn, n times. After an error, rounds omits the entry from further rounds, because the
// rate of a broker that loses messages has no meaning.
func (b *bench) rounds(ctx context.Context, n int, entries []entry) (*report.Table, error) {
	t := &report.Table{}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
		return !slices.Contains(b.brokers, e.kind) || !strings.Contains(e.name, b.only)
	})
	for _, e := range entries {
		t.Contenders = append(t.Contenders, &report.Contender{Name: e.name, Against: e.against, Limit: e.limit})
	}
	err := t.Interleave(ctx, n, os.Stderr, func(i int) (report.Metrics, error) {
		e := &entries[i]
		measure := e.measure
		if measure == nil {
			measure = steady
		}
		m, err := measure(ctx, b, e)
		if err != nil && ctx.Err() == nil {
			err = errors.Join(err, b.discard(e.kind))
		}
		return m, err
	})
	if err != nil {
		return nil, err
	}
	return t, b.stopAll()
}

// steady measures a broker that keeps running during all rounds.
func steady(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	broker, err := b.idleBroker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	m, _, err := b.generate(ctx, broker, append(slices.Clone(e.args),
		"-duration", b.durationOr(10*time.Second).String(), "-warmup", b.warmUp.String()), nil)
	return m, err
}

// idleBroker returns a running broker when all processes are idle.
func (b *bench) idleBroker(ctx context.Context, kind string) (brokers.Broker, error) {
	broker, err := b.broker(ctx, kind)
	if err != nil {
		return nil, err
	}
	return broker, b.awaitIdle(ctx)
}

// disk measures fsyncloop.
func disk(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	if err := b.awaitIdle(ctx); err != nil {
		return nil, err
	}
	args := append([]string{"-dir", b.tmp, "-duration", b.durationOr(10 * time.Second).String()}, e.args...)
	out, err := exec.CommandContext(ctx, filepath.Join(b.tmp, "fsyncloop"), args...).Output()
	if err != nil {
		return nil, err
	}
	var r struct {
		Records float64 `json:"records_per_s"`
		P50     float64 `json:"sync_p50_us"`
		P99     float64 `json:"sync_p99_us"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, err
	}
	return report.Metrics{perSecond: r.Records, p50: r.P50, p99: r.P99}, nil
}

// byType makes an entry for each queue type of reprise and RabbitMQ.
func byType(limit string, args ...string) (all []entry) {
	for _, kind := range []string{"quorum", "classic"} {
		for _, broker := range []string{brokers.Reprise, brokers.RabbitMQ} {
			all = append(all, entry{
				name: broker + " " + kind, kind: broker, against: brokers.RabbitMQ + " " + kind, limit: limit,
				args: append(slices.Clone(args), "-type", kind),
			})
		}
	}
	return all
}
