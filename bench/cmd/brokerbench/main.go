// Command brokerbench compares the embedded broker with RabbitMQ, LavinMQ, a null broker and the disk; see bench/README.md. `make
// bench-broker` runs this command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/reprisemq/reprise/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "brokerbench:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if len(o.scenarios) == 0 {
		help(os.Stdout)
		return nil
	}
	b, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.end()) }()
	all := report.NewRun(o.root)
	for _, s := range scenarios {
		if !slices.Contains(o.scenarios, s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "\n== %s\n", s.name)
		table, err := s.run(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		table.Name, table.Text, table.Target = s.name, s.text, s.target
		if err := all.Add(os.Stdout, table, o.json); err != nil {
			return err
		}
	}
	return nil
}

type scenario struct {
	name, text, target string
	run                func(context.Context, *bench) (*report.Table, error)
}

var scenarios = []scenario{transient, persistent, latency, waiting, start, scale, perf}

func names() (all []string) {
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

func help(out *os.File) {
	fmt.Fprint(out, "make bench-broker ARGS='-scenarios NAME,... [flags]'\n\nScenarios, or all:\n\n")
	for _, s := range scenarios {
		fmt.Fprintf(out, "  %s\n      %s\n", s.name, strings.ReplaceAll(s.text, "\n", "\n      "))
		if s.target != "" {
			fmt.Fprintf(out, "      Target: %s\n", s.target)
		}
	}
	fmt.Fprint(out, "\nFlags:\n\n")
	flags := flags(new(options))
	flags.SetOutput(out)
	flags.PrintDefaults()
}
