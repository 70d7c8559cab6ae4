// Command staking simulates the staking queues: an indexer, its services, and a database that fails occasionally. Its
// exit code is 1 unless each sent message is booked or parked.
//
//	go run -C examples ./staking [-url amqp://…] [-type quorum] [-delay 500ms] [-serve [-book] | -send]
//
// With -serve, it runs only the services; with -send, it runs only the indexer. Another program then runs the other
// part.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/preset"
)

// demoDelay is the default delay, which is short, but long enough to observe.
const demoDelay = 500 * time.Millisecond

func main() {
	var f serve.Flags
	f.Define()
	stakes := flag.Int("stakes", 20, "number of `stakes`; each has one event in each of the seven queues")
	delay := flag.Duration("delay", 0, fmt.Sprintf("delay of a requeued message; default %s, with -serve %s as deployed", demoDelay, preset.StakingRetryDelay))
	retries := flag.Int("retries", 10, "maximum number of requeues before a message is parked")
	fail := flag.Int("fail", 5, "each `n`th booking fails; 0 for none")
	queueType := flag.String("type", "quorum", "type of the queues, quorum or classic; must be the type of existing queues")
	queues := flag.String("queues", "", "with -serve: the work `queues`, separated by commas; default: the seven of the design")
	book := flag.Bool("book", false, "with -serve: book the events of the design; default: accept any body")
	send := flag.Bool("send", false, "send the events without booking them")
	rejected := flag.Bool("rejected", false, "show the effect of one rejected message on a delay queue, and its removal, in separate queues")
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		switch {
		case *stakes < 0 || *retries < 1 || *fail < 0 || *fail == 1:
			return errors.New("-stakes must not be negative, -retries must be at least 1, and -fail must be 0 or at least 2")
		case f.Serve && *send:
			return errors.New("-serve and -send exclude each other (without them, the program does both)")
		case *book && (!f.Serve || f.FailFirst != 0 || *queues != ""):
			return errors.New("-book requires -serve, and excludes -queues and -fail-first (use -fail)")
		case *rejected && (f.Serve || *send):
			return errors.New("-rejected excludes -serve and -send")
		case *queues != "" && !f.Serve:
			return errors.New("-queues requires -serve")
		case *send && s.Embedded():
			return errors.New("-send requires -url (the messages of an embedded broker are lost when this program exits)")
		case f.Serve && !s.Shared:
			return serve.ErrAlone
		case f.Serve:
			*delay = cmp.Or(*delay, preset.StakingRetryDelay)
		}
		if err := f.Validate(); err != nil {
			return err
		}
		design := staking.Design{RetryDelay: cmp.Or(*delay, demoDelay), QueueType: *queueType}
		if err := design.Validate(); err != nil {
			return err
		}
		if f.Serve && !*book {
			if *queues != "" {
				design.Queues = strings.Split(*queues, ",")
			}
			return acceptAll(design, *retries, f.FailFirst).Run(ctx, s)
		}
		fmt.Printf("%s queues on %s\n", *queueType, where(s))
		demo := staking.Demo{
			URL:        s.URL,
			Client:     reprise.Config{Dial: s.DialContext, Logger: s.Logger, Name: "staking"},
			Design:     design,
			Stakes:     *stakes,
			MaxRetries: *retries,
			FailEvery:  *fail,
			Out:        os.Stdout,
		}
		switch {
		case f.Serve:
			return demo.Serve(ctx)
		case *send:
			return demo.Index(ctx)
		case *rejected:
			return demo.Rejected(ctx)
		}
		return s.Clean(design.Topology(), func() error { return demo.Run(ctx) })
	})
}

// acceptAll returns a service for the work queues of the design that accepts messages with any body.
func acceptAll(design staking.Design, retries, failFirst int) serve.Service {
	service := serve.Service{Design: design.Topology(), FailFirst: failFirst, Flags: "-type", Out: os.Stdout}
	for _, q := range service.Design.Queues {
		if strings.HasSuffix(q.Name, preset.StakingDelaySuffix) || strings.HasSuffix(q.Name, preset.StakingFailedSuffix) {
			continue
		}
		service.Workers = append(service.Workers, reprise.WorkerConfig{
			Queue: q.Name, Strategy: design.Strategy(), Policy: reprise.Policy{MaxAttempts: retries + 1},
		})
	}
	service.Intro = fmt.Sprintf("Working on %d %s queues until interrupted.\nFailed messages are retried after %s, up to %d times, and then parked.",
		len(service.Workers), design.QueueType, design.RetryDelay, retries)
	return service
}

func where(s *stage.Stage) string {
	if s.Embedded() {
		return "a broker in this process"
	}
	return "RabbitMQ"
}
