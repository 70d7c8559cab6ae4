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
	flags.StringVar(&o.URL, "url", "amqp://guest:guest@127.0.0.1:5672", "URL of the broker")
	flags.IntVar(&o.Publishers, "publishers", 1, "number of publishers")
	flags.IntVar(&o.Consumers, "consumers", 1, "number of consumers; -1 means none, so that the messages stay in the queues")
	flags.IntVar(&o.Connections, "connections", 0, "number of shared connections (default one per publisher and consumer)")
	flags.IntVar(&o.Queues, "queues", 1, "number of queues")
	flags.StringVar(&o.Queue, "queue", "bench", "prefix of the queue names, followed by a number")
	flags.StringVar(&o.QueueType, "type", "classic", "queue type: classic or quorum")
	flags.Func("arg", "argument of the queues as NAME=VALUE; can be repeated", func(s string) error {
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
	flags.BoolVar(&o.Transient, "transient", false, "publish transient messages")
	flags.IntVar(&o.Body, "body", 16, "size of a message in bytes, at least 16")
	flags.DurationVar(&o.TTL, "ttl", 0, "TTL after which messages expire to a second queue, which the consumers use")
	flags.IntVar(&o.Confirms, "confirms", 0, "maximum number of unconfirmed messages per publisher (default: no confirms)")
	flags.IntVar(&o.Prefetch, "prefetch", 0, "prefetch of each consumer (default: no limit)")
	flags.StringVar(&o.Ack, "ack", load.AckEach, "acknowledgement: auto, each (one ack per message) or multiple")
	flags.Float64Var(&o.Rate, "rate", 0, "messages per second, evenly spaced (default: no limit)")
	flags.Int64Var(&o.Count, "count", 0, "number of messages to publish (instead of -duration)")
	flags.DurationVar(&o.Duration, "duration", 0, "time to publish")
	flags.DurationVar(&o.WarmUp, "warmup", 0, "time to publish before the measurement")
	flags.DurationVar(&o.Late, "late", 0, "lateness above which a message counts as late with -ttl (default 50ms)")
	flags.DurationVar(&o.Stall, "stall", 0, "time without deliveries after which messages count as lost (default 30s)")
	flags.BoolVar(&o.Keep, "keep", false, "keep the queues")
	events := flags.Bool("events", false, "print the events measuring, published and drained to stderr")
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
