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
	f.Func("scenarios", "`names` with commas in between, or all", func(s string) error {
		o.scenarios = strings.Split(s, ",")
		if s == "all" {
			o.scenarios = names()
		}
		for _, name := range o.scenarios {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("%q is none of %s", name, strings.Join(names(), ", "))
			}
		}
		return nil
	})
	f.StringVar(&o.broker, "broker", brokers.RabbitMQ, "what is between them, `rabbitmq` or reprise")
	f.StringVar(&o.url, "url", "", "`URL` of a broker that runs already, with what is in it; its processor time is not counted")
	f.StringVar(&o.only, "only", "", "leave out those whose names do not have this `text` in them, as pipelined")
	f.StringVar(&o.root, "root", ".", "`folder` of the repository")
	f.StringVar(&o.json, "json", "", "`file` to write everything to, each round of it")
	f.StringVar(&o.profiles, "profiles", "", "`folder` for profiles of every contender, which is slower for it")
	f.BoolVar(&o.short, "short", false, "less of everything: to see that it works, not to be quoted")
	f.IntVar(&o.rounds, "rounds", 5, "`number` of times each contender is measured")
	f.IntVar(&o.again, "again", 0, "`number` of times a round is made anew in which something else used the processors, before it counts")
	f.IntVar(&o.messages, "messages", 100_000, "`number` of them in a round; those who are slow on purpose get less")
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
