// Command amqpload puts load on an AMQP 0-9-1 broker, checks the delivered messages, and prints its measurements as JSON.
//
//	amqpload -url amqp://guest:guest@127.0.0.1:5672 -duration 10s -warmup 2s -ack auto -transient
//	amqpload -url … -count 100000 -body 1024 -confirms 100 -prefetch 200 -type quorum
//	amqpload -url … -duration 20s -body 1024 -confirms 1000 -rate 2000
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/reprisemq/reprise/bench/load"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "amqpload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o load.Options
	flags := flag.NewFlagSet("amqpload", flag.ExitOnError)
	flags.StringVar(&o.URL, "url", "amqp://guest:guest@127.0.0.1:5672", "the broker")
	flags.IntVar(&o.Publishers, "publishers", 1, "how many publish")
	flags.IntVar(&o.Consumers, "consumers", 1, "how many consume; -1 for none, which leaves the messages in the queues")
	flags.IntVar(&o.Connections, "connections", 0, "shared by publishers and consumers (default one for each)")
	flags.IntVar(&o.Queues, "queues", 1, "how many queues")
	flags.StringVar(&o.Queue, "queue", "bench", "their name, which a number follows")
	flags.StringVar(&o.QueueType, "type", "classic", "classic or quorum")
	flags.Func("arg", "NAME=VALUE, an argument of the queues; may be repeated", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", s)
		}
		f := amqpwire.Field{Name: name, Value: value}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			f.Value = n
		}
		o.Arguments = append(o.Arguments, f)
		return nil
	})
	flags.BoolVar(&o.Transient, "transient", false, "messages need not survive a restart")
	flags.IntVar(&o.Body, "body", 16, "bytes of a message, 16 at least")
	flags.DurationVar(&o.TTL, "ttl", 0, "let messages expire into a second queue, and consume from that")
	flags.IntVar(&o.Confirms, "confirms", 0, "messages in flight of each publisher (default not confirmed)")
	flags.IntVar(&o.Prefetch, "prefetch", 0, "of each consumer of a queue (default no limit)")
	flags.StringVar(&o.Ack, "ack", load.AckEach, "auto, each (one ack for each message) or multiple")
	flags.Float64Var(&o.Rate, "rate", 0, "messages per second, evenly spaced (default as fast as it goes)")
	flags.Int64Var(&o.Count, "count", 0, "messages to publish, or")
	flags.DurationVar(&o.Duration, "duration", 0, "how long to publish")
	flags.DurationVar(&o.WarmUp, "warmup", 0, "how long to publish before that")
	flags.DurationVar(&o.Late, "late", 0, "what counts as late with -ttl (default 50ms)")
	flags.DurationVar(&o.Stall, "stall", 0, "how long nothing may come before messages count as lost (default 30s)")
	flags.BoolVar(&o.Keep, "keep", false, "leave the queues at the end")
	events := flags.Bool("events", false, "print measuring, published and drained to stderr, each in a line, as they come")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	result, err := load.Run(ctx, o, func(e load.Event) {
		if *events {
			fmt.Fprintln(os.Stderr, e)
		}
	})
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(result)
}
