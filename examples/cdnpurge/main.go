// Command cdnpurge demonstrates the CDN purge service in less than half a minute. The CDN is a stand-in on the loopback
// interface. The backlog grows during the peak hours of the CDN, and shrinks afterwards. Each delay is 1/100 of the
// delay in the design.
//
//	go run -C examples ./cdnpurge
//	go run -C examples ./cdnpurge -url "$(scripts/rabbitmq start 4.3)"
//	go run -C examples ./cdnpurge -serve -url amqp://…      process the messages of other programs
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
)

func main() {
	show := cdnpurge.Show{Out: os.Stdout}
	var f serve.Flags
	f.Define()
	flag.IntVar(&show.Purges, "purges", 180, "`number` of purges to publish")
	flag.DurationVar(&show.Over, "over", 9*time.Second, "`duration` of publishing; the middle third is the peak of the CDN")
	flag.IntVar(&show.Room, "room", 16, "capacity of the CDN's queue, in `purges`")
	flag.DurationVar(&show.First, "first", 0, fmt.Sprintf("first `delay`; each further delay is three times as long (default 100ms, with -serve %s)", preset.CDNPurgeFirst))
	beside := flag.Bool("beside", false, "run a second consumer of the queue that does not use Reprise")
	broken := flag.Bool("breaker", false, "stop consuming for a second when the CDN's queue is full")
	names := defineNames()
	stage.Main(func(ctx context.Context, s *stage.Stage) error {
		if err := errors.Join(f.Validate(), names.validate(f.Serve)); err != nil {
			return err
		}
		if f.Serve {
			return names.serve(ctx, s, show.First, f.FailFirst)
		}
		show.First = cmp.Or(show.First, 100*time.Millisecond)
		show.Dial = func(ctx context.Context, c *reprise.Config) (*reprise.Client, error) {
			c.Dial, c.Logger = s.DialContext, s.Logger
			return reprise.Dial(ctx, s.URL, c)
		}
		if *beside {
			show.Foreign = func(ctx context.Context, design cdnpurge.Design, p *cdnpurge.Purger, done func(string)) error {
				return other(ctx, s, &cdnpurge.Other{Design: design, Purger: p, Done: done})
			}
		}
		if *broken {
			b, err := breaker.New(breaker.Config{Failures: 1, OpenFor: time.Second})
			if err != nil {
				return err
			}
			show.Breaker = b
		}
		fmt.Printf("%d purges in %s. A refused purge is retried after %s, then after three times the previous delay (the design: 10s).\n\n",
			show.Purges, show.Over, show.First)
		return s.Clean(cdnpurge.Design{RoutingKeys: cdnpurge.Kinds}.Topology(), func() error { return show.Run(ctx) })
	})
}

// other runs o, the program without Reprise, on a separate connection.
func other(ctx context.Context, s *stage.Stage, o *cdnpurge.Other) error {
	config := amqp.Config{}
	if s.Embedded() {
		config.Dial = dialer(ctx, s)
	}
	conn, err := amqp.DialConfig(s.URL, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all deliveries are settled
	return o.Run(ctx, conn)
}

func dialer(ctx context.Context, s *stage.Stage) func(network, addr string) (net.Conn, error) {
	return func(network, addr string) (net.Conn, error) { return s.DialContext(ctx, network, addr) }
}
