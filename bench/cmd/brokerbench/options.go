package main

import (
	"cmp"
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
	chosen    bool // the user has set brokers
	short     bool
	rounds    int
	duration  time.Duration
	warmUp    time.Duration
	messages  int64
	rate      float64
}

var allBrokers = []string{brokers.Reprise, brokers.RabbitMQ, brokers.LavinMQ, brokers.Null, fsync}

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
					return fmt.Errorf("%q not found (use one of %s)", name, strings.Join(known, ", "))
				}
			}
			return nil
		}
	}
	f.Func("scenarios", "`names` of scenarios, separated by commas, or all", list(&o.scenarios, names()))
	f.Func("brokers", "`names` of the compared brokers, separated by commas (default all)",
		list(&o.brokers, allBrokers))
	f.StringVar(&o.only, "only", "", "run only contenders whose names contain this `string`, such as quorum")
	f.StringVar(&o.root, "root", ".", "`folder` of the repository")
	f.StringVar(&o.reprise, "reprise", "", "`file` of the command reprise (default: build it)")
	f.StringVar(&o.data, "data", "", "`folder` for the data of reprise and the sync loop, on the disk of RabbitMQ (default: a temporary folder)")
	f.StringVar(&o.json, "json", "", "`file` for the results of all rounds")
	f.StringVar(&o.svg, "svg", "", "`folder` for the charts of the scenario scale")
	f.StringVar(&o.profiles, "profiles", "", "`folder` for profiles of reprise, which slow it down")
	f.BoolVar(&o.memory, "memory", false, "run reprise in memory, without the scenario start")
	f.BoolVar(&o.short, "short", false, "run a short test of the scenarios, whose results must not be quoted")
	f.IntVar(&o.rounds, "rounds", 0, "`number` of rounds per broker (default depends on the scenario)")
	f.DurationVar(&o.duration, "duration", 0, "publishing time of a round of transient, persistent, latency, scale (default 10s) and perf (default 4s)")
	f.DurationVar(&o.warmUp, "warmup", 3*time.Second, "warm-up before this time")
	f.Int64Var(&o.messages, "messages", 1_000_000, "`number` of messages in waiting and start")
	f.Float64Var(&o.rate, "rate", 20_000, "`number` of messages per second in waiting")
	return f
}

func parse(args []string) (*options, error) {
	o := &options{brokers: allBrokers}
	f := flags(o)
	f.Usage = func() { help(os.Stderr) }
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	f.Visit(func(set *flag.Flag) { o.chosen = o.chosen || set.Name == "brokers" })
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q (use flags, such as -scenarios %s)", f.Arg(0), f.Arg(0))
	}
	if o.short {
		o.duration, o.warmUp, o.messages = 2*time.Second, time.Second, min(o.messages, 50_000)
	}
	return o, nil
}

// durationOr returns the publishing time that the user has set, or d.
func (o *options) durationOr(d time.Duration) time.Duration { return cmp.Or(o.duration, d) }

// roundsOr returns the number of rounds that the user has set, or n.
func (o *options) roundsOr(n int) int {
	switch {
	case o.rounds > 0:
		return o.rounds
	case o.short:
		return 1
	}
	return n
}
