// Command workretry retries the same flaky jobs in four ways, while processes exit and connections break. For each way,
// it prints the numbers of lost and duplicated jobs. With -serve, it instead processes the messages in WorkQueue,
// together with other programs.
//
//	go run -C examples ./workretry [-url amqp://…]
//	go run -C examples ./workretry -serve -url amqp://…
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/examples/workretry/workretry"
	"github.com/reprisemq/reprise/internal/preset"
)

func main() {
	var c workretry.Comparison
	var f serve.Flags
	f.Define()
	flag.IntVar(&c.Jobs, "jobs", 0, fmt.Sprintf("number of `jobs` to publish in each way (default %d)", workretry.DefaultJobs))
	flag.DurationVar(&c.Delay, "delay", 0, fmt.Sprintf("`delay` of a retry (default %s, with -serve %s)", workretry.DefaultDelay, preset.WorkRetryRetryDelay))
	flag.Uint64Var(&c.Seed, "seed", 1, "seed of the number of failures of each job")
	d := defineDesign()
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		if err := errors.Join(f.Validate(), d.validate(f.Serve)); err != nil {
			return err
		}
		if f.Serve {
			return d.serve(ctx, s, c.Delay, f.FailFirst)
		}
		if err := c.Validate(); err != nil {
			return err
		}
		fmt.Printf("%s\n\n", c)
		report, err := workretry.Compare(ctx, workretry.Broker{URL: s.URL, Dial: s.DialContext, Logger: s.Logger}, c)
		if err != nil {
			return err
		}
		report.Print(os.Stdout)
		return nil
	})
}

// design configures the exchanges and queues.
type design struct {
	workretry.Design
	attempts int
}

// defineDesign defines the flags of a design.
func defineDesign() *design {
	d := &design{}
	flag.StringVar(&d.Kind, "kind", "", "with -serve: the `kind` of both exchanges, direct, fanout or topic; default direct")
	flag.StringVar(&d.Key, "key", "", "with -serve: the binding `key` of both queues; default: empty")
	flag.BoolVar(&d.TransientExchanges, "transient", false, "with -serve: the exchanges are transient")
	flag.StringVar(&d.QueueType, "type", "", "with -serve: x-queue-type of both queues, classic or quorum; default: none")
	flag.IntVar(&d.attempts, "max-attempts", reprise.DefaultMaxAttempts, "with -serve: the worker parks a message after this number of `attempts`; the design retries indefinitely")
	return d
}

func (d *design) validate(serve bool) error {
	if !serve && (d.Design != workretry.Design{} || d.attempts != reprise.DefaultMaxAttempts) {
		return errors.New("-kind, -key, -transient, -type and -max-attempts require -serve")
	}
	return nil
}

// serve processes the messages that other programs publish to WorkQueue. The messages can have any body.
func (d *design) serve(ctx context.Context, s *stage.Stage, delay time.Duration, failFirst int) error {
	d.RetryDelay = delay
	if err := d.Validate(); err != nil {
		return err
	}
	service := serve.Service{
		Design: serve.Plain(d.Topology(), preset.WorkRetryFailedQueue), FailFirst: failFirst, Out: os.Stdout,
		Flags: "-delay for x-message-ttl, -kind for the exchanges' type, -transient where they are not durable, or -type",
		Workers: []reprise.WorkerConfig{{
			Queue: d.Queue(), Strategy: d.Strategy(), Policy: reprise.Policy{MaxAttempts: d.attempts},
		}},
	}
	if delay == 0 {
		delay = preset.WorkRetryRetryDelay
	}
	service.Intro = fmt.Sprintf("Working on %s until interrupted. Failed messages are rejected, retried after %s,\nand parked after %d attempts.", d.Queue(), delay, d.attempts)
	return service.Run(ctx, s)
}
