// Command peers compares Reprise with other libraries that retry messages; see README.md. `make bench-peers` runs this command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/report"
)

type options struct {
	root, bin, json, log string
	reprise              string // path of the command
	peers, steps         []string
	messages, rounds     int
	concurrency          int
	wait, soon           time.Duration
	readme               bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{soon: 2 * time.Second}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	only := flags.String("peers", "", "names of `peers`, separated by commas. Default: all")
	some := flags.String("steps", "", "`steps` of a round, separated by commas: process, fail, late, kill-worker, kill-store, replay. Default: all")
	flags.IntVar(&o.messages, "messages", 10000, "`number` of messages of the largest steps")
	flags.IntVar(&o.rounds, "rounds", 3, "`number` of rounds")
	flags.IntVar(&o.concurrency, "concurrency", 8, "`number` of handlers that run at the same time")
	flags.DurationVar(&o.wait, "wait", 20*time.Second, "`delay` of the retries whose memory is measured; all messages must fail before it ends")
	flags.BoolVar(&o.readme, "readme", false, "write the results to bench/peers/README.md")
	flags.StringVar(&o.json, "json", "", "write the results to this `file`")
	flags.StringVar(&o.log, "log", "", "write the output of all processes to this `file`")
	flags.StringVar(&o.root, "root", ".", "root `folder` of the repository")
	flags.StringVar(&o.bin, "bin", filepath.Dir(self), "`folder` of the compiled peers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	o.reprise = filepath.Join(o.root, "bin/reprise")
	if *only != "" {
		o.peers = strings.Split(*only, ",")
	}
	if *some != "" {
		o.steps = strings.Split(*some, ",")
	}
	result := report.NewRun(o.root)
	table, err := compare(ctx, o)
	if err != nil && (table == nil || rounds(table) == 0) {
		return err
	}
	result.Ended, result.Tables = time.Now(), []*report.Table{table}
	text := results(result, table)
	fmt.Print(text)
	if o.readme {
		err = errors.Join(err, writeReadme(filepath.Join(o.root, "bench/peers/README.md"), text))
	}
	if o.json != "" {
		b, _ := json.MarshalIndent(result, "", "  ")
		err = errors.Join(err, os.WriteFile(o.json, append(b, '\n'), 0o644))
	}
	return err
}

// compare measures the peers in interleaved rounds.
func compare(ctx context.Context, o options) (*report.Table, error) {
	var log io.Writer = io.Discard
	if o.log != "" {
		f, err := os.Create(o.log)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		log = f
	}
	chosen := peers(o)
	if o.peers != nil {
		all := chosen
		chosen = nil
		for _, name := range o.peers {
			p := find(all, name)
			if p == nil {
				return nil, fmt.Errorf("peer %q not found", name)
			}
			chosen = append(chosen, p)
		}
	}
	table := &report.Table{}
	for _, p := range chosen {
		c := &report.Contender{Name: p.name}
		if p.install != nil {
			if err := p.install(o.root); err != nil {
				c.Failed = err.Error()
				table.Notes = append(table.Notes, fmt.Sprintf("%s cannot run: %v", p.name, err))
			}
		}
		table.Contenders = append(table.Contenders, c)
	}
	err := table.Interleave(ctx, o.rounds, os.Stderr, func(i int) (report.Metrics, error) {
		m, failed, err := measure(ctx, o, chosen[i], log)
		for _, problem := range failed {
			if err == nil {
				table.Notes = append(table.Notes, fmt.Sprintf("%s: %v", chosen[i].name, problem))
			}
		}
		return m, err
	})
	return table, err
}

// measure runs a round with a new store. It returns the errors of steps that failed, whose metrics are missing.
func measure(ctx context.Context, o options, p *peer, log io.Writer) (m report.Metrics, failed []error, err error) {
	tmp, err := os.MkdirTemp("", "reprise-peers-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(tmp)
	l, err := newLedger(filepath.Join(tmp, "reports"))
	if err != nil {
		return nil, nil, err
	}
	defer l.listener.Close()
	store, err := newStore(p.store, o, tmp, log)
	if err != nil {
		return nil, nil, err
	}
	defer store.Remove()
	if err := store.Start(ctx); err != nil {
		return nil, nil, err
	}
	r := &round{
		peer: p, steps: o.steps, size: o.messages, wait: o.wait, soon: o.soon, store: store, ledger: l, log: log, metrics: report.Metrics{},
		settings: settings{url: store.URL(), reports: filepath.Join(tmp, "reports"), concurrency: o.concurrency},
	}
	failed = r.run(ctx)
	return r.metrics, failed, ctx.Err()
}
