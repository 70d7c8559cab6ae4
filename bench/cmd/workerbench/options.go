package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/brokers"
)

type options struct {
	scenarios []string
	broker    string
	url       string
	only      string
	root      string
	json      string
	profiles  string
	short     bool
	rounds    int
	again     int
	messages  int
}

func flags(o *options) *flag.FlagSet {
	f := flag.NewFlagSet("workerbench", flag.ContinueOnError)
	f.Func("scenarios", "`names` of scenarios, separated by commas, or all", func(s string) error {
		o.scenarios = strings.Split(s, ",")
		if s == "all" {
			o.scenarios = names()
		}
		for _, name := range o.scenarios {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("%q not found (use one of %s)", name, strings.Join(names(), ", "))
			}
		}
		return nil
	})
	f.StringVar(&o.broker, "broker", brokers.RabbitMQ, "broker: `rabbitmq` or reprise")
	f.StringVar(&o.url, "url", "", "`URL` of a running broker, whose processor time does not count")
	f.StringVar(&o.only, "only", "", "run only contenders whose names contain this `string`, such as pipelined")
	f.StringVar(&o.root, "root", ".", "`folder` of the repository")
	f.StringVar(&o.json, "json", "", "`file` for the results of all rounds")
	f.StringVar(&o.profiles, "profiles", "", "`folder` for profiles of every contender, which slow it down")
	f.BoolVar(&o.short, "short", false, "run a short test of the scenarios, whose results must not be quoted")
	f.IntVar(&o.rounds, "rounds", 5, "`number` of rounds per contender")
	f.IntVar(&o.again, "again", 0, "maximum `number` of repetitions of a round during which other processes used the processors")
	f.IntVar(&o.messages, "messages", 100_000, "`number` of messages per round; slow contenders get fewer")
	return f
}

func parse(args []string) (*options, error) {
	o := new(options)
	f := flags(o)
	f.Usage = func() { help(os.Stderr) }
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q (use flags, such as -scenarios %s)", f.Arg(0), f.Arg(0))
	}
	if o.short {
		o.rounds, o.messages = 1, 20_000
	}
	return o, nil
}
