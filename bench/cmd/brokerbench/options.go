package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
)

type options struct {
	scenarios []string
	brokers   []string
	only      string
	root      string
	reprise   string
	data      string
	json      string
	svg       string
	profiles  string
	memory    bool
	short     bool
	rounds    int
	duration  time.Duration
	warmUp    time.Duration
	messages  int64
	rate      float64
}

func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("brokerbench", flag.ContinueOnError)
	list := func(to *[]string, known []string) func(string) error {
		return func(s string) error {
			*to = strings.Split(s, ",")
			if s == "all" {
				*to = known
			}
			for _, name := range *to {
				if !slices.Contains(known, name) {
					return fmt.Errorf("%q is none of %s", name, strings.Join(known, ", "))
				}
			}
			return nil
		}
	}
	f.Func("scenarios", "`names` with commas in between, or all", list(&o.scenarios, names()))
	f.Func("brokers", "`names` of those to compare, with commas in between (default reprise,rabbitmq,null,fsync)",
		list(&o.brokers, []string{brokers.Reprise, brokers.RabbitMQ, brokers.Null, fsync}))
	f.StringVar(&o.only, "only", "", "leave out those whose names do not have this `text` in them, as quorum")
	f.StringVar(&o.root, "root", ".", "`folder` of the repository")
	f.StringVar(&o.reprise, "reprise", "", "`file` of the command reprise (default it is built anew)")
	f.StringVar(&o.data, "data", "", "`folder` for what reprise and the sync loop write; it should be on RabbitMQ's disk (default one for temporary files)")
	f.StringVar(&o.json, "json", "", "`file` to write everything to, each round of it")
	f.StringVar(&o.svg, "svg", "", "`folder` for the charts of the scenario scale")
	f.StringVar(&o.profiles, "profiles", "", "`folder` for profiles of reprise, which is slower for it")
	f.BoolVar(&o.memory, "memory", false, "run reprise without -data; nothing survives then, and start is left out for it")
	f.BoolVar(&o.short, "short", false, "less of everything: to see that it works, not to be quoted")
	f.IntVar(&o.rounds, "rounds", 0, "`number` of times each broker is measured (default depends on the scenario)")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long a round of transient, persistent, latency and scale publishes")
	f.DurationVar(&o.warmUp, "warmup", 3*time.Second, "and for how long before that")
	f.Int64Var(&o.messages, "messages", 1_000_000, "`number` that wait (waiting) or are there (start)")
	f.Float64Var(&o.rate, "rate", 20_000, "`number` of messages published a second in waiting, which expire as fast")
	return f
}

func parse(args []string) (*options, error) {
	o := &options{brokers: []string{brokers.Reprise, brokers.RabbitMQ, brokers.Null, fsync}}
	f := flags(o)
	f.Usage = func() { help(os.Stderr) }
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q (use flags, such as -scenarios %s)", f.Arg(0), f.Arg(0))
	}
	if o.short {
		o.duration, o.warmUp, o.messages = 2*time.Second, time.Second, min(o.messages, 50_000)
	}
	return o, nil
}

// roundsOr returns the number of rounds. The default is n.
func (o *options) roundsOr(n int) int {
	switch {
	case o.rounds > 0:
		return o.rounds
	case o.short:
		return 1
	}
	return n
}
