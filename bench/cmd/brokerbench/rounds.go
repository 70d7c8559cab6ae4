package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// fsync is the kind of a contender that is no broker but the disk.
const fsync = "fsync"

// entry is a contender as a scenario describes it.
type entry struct {
	name, kind     string
	against, limit string
	args           []string // of amqpload, or of fsyncloop
	measure        func(context.Context, *bench, *entry) (report.Metrics, error)
}

// rounds measures the entries in turn, as often as asked: what disturbs the
// machine for a while disturbs all of them. One that fails is left out from then
// on, and that is said; a broker that loses messages has no rate.
func (b *bench) rounds(ctx context.Context, n int, entries []entry) (*report.Table, error) {
	t := &report.Table{}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
		return !slices.Contains(b.brokers, e.kind) || !strings.Contains(e.name, b.only)
	})
	for _, e := range entries {
		t.Contenders = append(t.Contenders, &report.Contender{Name: e.name, Against: e.against, Limit: e.limit})
	}
	for round := range n {
		for i := range entries {
			e, c := &entries[i], t.Contenders[i]
			if c.Failed != "" {
				continue
			}
			measure := e.measure
			if measure == nil {
				measure = steady
			}
			m, err := measure(ctx, b, e)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				c.Failed = err.Error()
				t.Notes = append(t.Notes, fmt.Sprintf("%s failed in round %d: %v", e.name, round+1, err))
				fmt.Fprintf(os.Stderr, "%d  %-28s FAILED: %v\n", round+1, e.name, err)
				if err := b.discard(e.kind); err != nil {
					return nil, err
				}
				continue
			}
			c.Add(m)
			fmt.Fprintf(os.Stderr, "%d  %-28s %s\n", round+1, e.name, brief(m))
		}
	}
	for _, c := range t.Contenders {
		if c.Median[others] > tolerable {
			t.Notes = append(t.Notes, fmt.Sprintf("NOT TO BE QUOTED: while %s was measured, something else used %.1f processors",
				c.Name, c.Median[others]))
		}
	}
	return t, b.stopAll()
}

// tolerable is how many processors may be used by what is neither the broker nor
// the generator: the idle brokers, and what the kernel does in its own name.
const tolerable = 0.15

// brief shows a round's metrics in a line.
func brief(m report.Metrics) string {
	var b strings.Builder
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "%s=%.5g ", key, m[key])
	}
	return b.String()
}

// steady measures a broker that runs through all rounds.
func steady(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	broker, err := b.broker(ctx, e.kind)
	if err != nil {
		return nil, err
	}
	if err := b.awaitIdle(ctx); err != nil {
		return nil, err
	}
	m, _, err := b.generate(ctx, broker, append(slices.Clone(e.args),
		"-duration", b.duration.String(), "-warmup", b.warmUp.String()), nil)
	return m, err
}

// disk measures what fsyncloop does.
func disk(ctx context.Context, b *bench, e *entry) (report.Metrics, error) {
	if err := b.awaitIdle(ctx); err != nil {
		return nil, err
	}
	args := append([]string{"-dir", b.tmp, "-duration", b.duration.String()}, e.args...)
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
