// Command run has the same flaky jobs retried in four ways, while processes end
// and connections break, and prints what each way has lost and duplicated. With
// -pair it works on WorkQueue instead, beside other programs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/examples/workretry"
)

func main() {
	var c workretry.Comparison
	var p workretry.Pair
	flag.IntVar(&c.Jobs, "jobs", 0, fmt.Sprintf("how many `jobs` to publish; default: %d in each way, and none with -pair", workretry.DefaultJobs))
	flag.DurationVar(&c.Delay, "delay", workretry.DefaultDelay, "how long a retry waits; the published design waits 5m")
	flag.Uint64Var(&c.Seed, "seed", 1, "for how often each job fails")
	pair := flag.Bool("pair", false, "work on WorkQueue beside other programs, until the jobs are done, or interrupted")
	flag.StringVar(&p.Design.Kind, "kind", "direct", "with -pair: of the exchanges as they are deployed: direct, fanout or topic")
	flag.StringVar(&p.Design.Key, "key", "", "with -pair: the routing `key` that both queues are bound with")
	flag.BoolVar(&p.Design.TransientExchanges, "transient", false, "with -pair: the exchanges are deployed as transient ones")
	flag.StringVar(&p.Design.QueueType, "type", "", "with -pair: the x-queue-type of both queues: classic or quorum; default: left out")
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		b := workretry.Broker{URL: s.URL, Dial: s.DialContext, Logger: s.Logger}
		if *pair {
			p.Design.RetryDelay, p.Jobs, p.Seed = c.Delay, c.Jobs, c.Seed
			return p.Run(ctx, b, os.Stdout)
		}
		if err := c.Validate(); err != nil {
			return err
		}
		fmt.Printf("%s\n\n", c)
		report, err := workretry.Compare(ctx, b, c)
		if err != nil {
			return err
		}
		report.Print(os.Stdout)
		return nil
	})
}
