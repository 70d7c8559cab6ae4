// Command cdnpurge shows the CDN purge service at work, for less than half a minute: its
// queue fills up at the peak hours of a CDN (a stand-in, on the loopback
// interface), and is emptied after them. The delays are 1/100 of the design's.
//
//	go run ./examples/cdnpurge
//	go run ./examples/cdnpurge -url "$(scripts/rabbitmq start 4.3)"
//	go run ./examples/cdnpurge -serve -url amqp://…      work on what others publish
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
	"github.com/reprisemq/reprise/examples/cdnpurge/internal/cdnpurge"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/topology/preset"
)

func main() {
	show := cdnpurge.Show{Out: os.Stdout}
	var f serve.Flags
	f.Define()
	flag.IntVar(&show.Purges, "purges", 180, "how many purges are published")
	flag.DurationVar(&show.Over, "over", 9*time.Second, "for how `long`; the middle third of it are the CDN's peak hours")
	flag.IntVar(&show.Room, "room", 16, "how many purges the CDN's queue holds")
	flag.DurationVar(&show.First, "first", 0, fmt.Sprintf("how `long` a message waits first; three times as long each other time. Default 100ms, with -serve %s as designed", preset.CDNPurgeFirst))
	beside := flag.Bool("beside", false, "have another program consume from the same queue: one without Reprise")
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
			show.Beside = func(ctx context.Context, design preset.CDNPurge, p *cdnpurge.Purger, done func(string)) error {
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
		fmt.Printf("%d purges in %s. A purge that is refused waits %s, then three times as long each time (the design: 10s).\n\n",
			show.Purges, show.Over, show.First)
		return s.Clean(preset.CDNPurge{}.Topology(), func() error { return show.Run(ctx) })
	})
}

// other runs the other program, with a connection of its own.
func other(ctx context.Context, s *stage.Stage, o *cdnpurge.Other) error {
	config := amqp.Config{}
	if s.Embedded() {
		config.Dial = dialer(ctx, s)
	}
	conn, err := amqp.DialConfig(s.URL, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it has settled what it had
	return o.Run(ctx, conn)
}

func dialer(ctx context.Context, s *stage.Stage) func(network, addr string) (net.Conn, error) {
	return func(network, addr string) (net.Conn, error) { return s.DialContext(ctx, network, addr) }
}
