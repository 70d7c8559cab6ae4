package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// bench is the state that all scenarios share.
type bench struct {
	*options
	tmp    string
	self   string         // path of this program
	broker brokers.Broker // nil if the broker at the URL was already running
}

func prepare(ctx context.Context, o *options) (*bench, error) {
	b := &bench{options: o}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if o.url != "" {
		return b, nil
	}
	if b.tmp, err = os.MkdirTemp("", "workerbench-"); err != nil {
		return nil, err
	}
	root, err := filepath.Abs(o.root)
	if err == nil {
		setup := brokers.Setup{Root: root, Data: b.tmp, Binary: filepath.Join(root, "bin/reprise"), Log: os.Stderr}
		b.broker, err = setup.New(o.broker)
	}
	if err == nil {
		err = b.broker.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.end())
	}
	b.url = b.broker.URL()
	return b, nil
}

// end stops the broker and removes its files.
func (b *bench) end() (err error) {
	if b.broker != nil {
		err = b.broker.Remove()
	}
	return errors.Join(err, os.RemoveAll(b.tmp), os.RemoveAll(bodies))
}

func (b *bench) measure(ctx context.Context, s scenario) (*report.Table, error) {
	t := &report.Table{Name: s.name, Text: s.text, Target: s.target, Subject: "client", Base: cmp.Or(s.base, "× by hand"), Columns: columns}
	if s.columns != nil {
		t.Columns = s.columns
	}
	var entries []entry
	for _, e := range s.entries {
		if strings.Contains(e.name, b.only) {
			entries = append(entries, e)
			t.Contenders = append(t.Contenders, &report.Contender{Name: e.name, Against: e.against, Limit: e.limit})
		}
	}
	err := t.Interleave(ctx, b.rounds, os.Stderr, func(i int) (m report.Metrics, err error) {
		for try := 0; try <= b.again; try++ {
			m, err = b.round(ctx, s, entries[i])
			if err != nil || ctx.Err() != nil || m[report.Others] <= report.Tolerable {
				break
			}
		}
		return m, err
	})
	return t, err
}

// round runs a contender once, and verifies the number of messages in each queue afterwards.
func (b *bench) round(ctx context.Context, s scenario, e entry) (report.Metrics, error) {
	messages := b.messages
	if e.share > 0 {
		messages = int(e.share * float64(messages))
	}
	filled, where := 0, workQueue
	if s.filled {
		filled, where = messages, ""
	}
	if s.copied {
		where = waitQueue
	}
	if err := b.fill(ctx, filled, e.partitions, e.fill); err != nil {
		return nil, fmt.Errorf("cannot fill the queue: %w", err)
	}
	// If the machine does not become idle, measure anyway: the metrics include the processor use of other programs.
	if _, err := proc.AwaitIdle(ctx, proc.Busy); err != nil {
		return nil, err
	}
	r, err := b.contend(ctx, e, messages)
	if err != nil {
		return nil, err
	}
	if err := b.verify(ctx, where, messages, e.partitions); err != nil {
		return nil, err
	}
	m := report.Metrics{
		perSecond: r.Messages / r.Seconds, cpuPerMsg: 1e6 * r.CPU / r.Messages,
		allocsPerMsg: r.Allocs / r.Messages, bytesPerMsg: r.AllocBytes / r.Messages,
	}
	if b.broker != nil {
		m[brokerPerMsg] = 1e6 * r.BrokerCPU / r.Messages
		m[report.Others] = r.OthersCPU / r.Seconds
	}
	return m, nil
}

// contend runs a contender in a separate process.
func (b *bench) contend(ctx context.Context, e entry, messages int) (result, error) {
	url := b.url
	if e.amqp091 {
		url += "?client=amqp091-go"
	}
	args := append([]string{contending, "-name", e.contender, "-url", url, "-queue", workQueue, "-messages", fmt.Sprint(messages), "-partitions", fmt.Sprint(e.partitions), "-reprise", filepath.Join(b.root, "bin/reprise")}, e.job.args()...)
	if b.broker != nil {
		args = append(args, "-broker", fmt.Sprint(b.broker.PID()))
	}
	if b.profiles != "" {
		for _, kind := range []string{"cpu", "mem", "mutex"} {
			args = append(args, "-"+kind+"profile", filepath.Join(b.profiles, strings.ReplaceAll(e.name, " ", "-")+"."+kind+".prof"))
		}
	}
	cmd := exec.CommandContext(ctx, b.self, args...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	var r result
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, problem.String())
	}
	fmt.Fprint(os.Stderr, problem.String())
	return r, json.Unmarshal(out.Bytes(), &r)
}
