// Command run plays the staking queues: an indexer, the services behind it, and a
// database that fails now and then. Its exit code is 1 if what was sent is not
// what was booked and parked.
//
//	go run ./examples/staking/run [-url amqp://…] [-type quorum] [-delay 500ms] [-serve | -send]
//
// With -serve or -send it plays one side alone, for another program to be the other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/examples/staking"
	"github.com/reprisemq/reprise/topology/preset"
)

func main() {
	stakes := flag.Int("stakes", 20, "how many `stakes`; each sends an event to each of the seven queues")
	delay := flag.Duration("delay", 500*time.Millisecond, "how long an event waits that is put back; deployed are 5s")
	retries := flag.Int("retries", 10, "how often an event is put back before it is parked")
	fail := flag.Int("fail", 5, "each `n`th booking fails; 0: none")
	queueType := flag.String("type", "quorum", "type of the queues, quorum or classic; it must be that of those that exist")
	serve := flag.Bool("serve", false, "send nothing, and book what others send, until interrupted: beside another program on the same queues")
	send := flag.Bool("send", false, "send the events, and leave the booking to others")
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		if *stakes < 0 || *retries < 1 || *fail < 0 || *fail == 1 {
			return errors.New("-stakes and -fail cannot be negative, -retries is at least 1, and -fail 1 would let nothing succeed")
		}
		if (*serve || *send) && s.Embedded() {
			return errors.New("-serve and -send need -url: nobody else can reach a broker in this process")
		}
		fmt.Printf("%s queues on %s\n", *queueType, where(s))
		demo := staking.Demo{
			URL:        s.URL,
			Client:     reprise.Config{Dial: s.DialContext, Logger: s.Logger, Name: "staking"},
			Design:     preset.Staking{RetryDelay: *delay, QueueType: *queueType},
			Stakes:     *stakes,
			MaxRetries: *retries,
			FailEvery:  *fail,
			Out:        os.Stdout,
		}
		switch {
		case *serve && *send:
			return errors.New("-serve and -send: with neither, it does both")
		case *serve:
			return demo.Serve(ctx)
		case *send:
			return demo.Index(ctx)
		}
		return demo.Run(ctx)
	})
}

func where(s *stage.Stage) string {
	if s.Embedded() {
		return "a broker in this process"
	}
	return "RabbitMQ"
}
