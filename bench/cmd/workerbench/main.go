// Command workerbench compares package reprise with loops that use the AMQP client directly; see bench/README.md. `make
// bench-worker` runs this command.
package main

import (
	"context"
	"encoding/json"
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
	run := run
	if len(os.Args) > 1 && os.Args[1] == contending {
		run = contend
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "workerbench:", err)
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
		table, err := b.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := all.Add(os.Stdout, table, o.json); err != nil {
			return err
		}
	}
	return nil
}

// contending is the first argument of a contender process.
const contending = "contender"

// contend runs a contender and prints its measurements.
func contend(ctx context.Context, args []string) error {
	j, err := parseJob(args[1:])
	if err != nil {
		return err
	}
	if err := j.profiles.Start(); err != nil {
		return err
	}
	err = j.contender(ctx, j)
	if err := errors.Join(err, j.profiles.Stop()); err != nil {
		return err
	}
	r, err := j.meter.result()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func help(out *os.File) {
	fmt.Fprint(out, "make bench-worker ARGS='-scenarios NAME,... [flags]'\n\nScenarios, or all:\n\n")
	for _, s := range scenarios {
		fmt.Fprintf(out, "  %s\n      %s\n      Target: %s\n", s.name, strings.ReplaceAll(s.text, "\n", "\n      "), s.target)
	}
	fmt.Fprint(out, "\nFlags:\n\n")
	flags := flags(new(options))
	flags.SetOutput(out)
	flags.PrintDefaults()
}
