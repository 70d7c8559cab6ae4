package cli

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/demo"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

type demoCmd struct {
	Once       bool          `help:"Stop after the last event. The exit code is 1 if a message is missing."`
	Events     int           `default:"60" placeholder:"N" help:"Number of events with --once. Default ${default}."`
	Seed       uint64        `placeholder:"N" help:"Seed of an earlier run, to repeat its events. Default: random."`
	RetryDelay time.Duration `name:"retry-delay" default:"2s" placeholder:"DURATION" help:"Delay of a retry. Default ${default}; the real system uses 4h."`
	Faults     float64       `default:"0.2" placeholder:"SHARE" help:"Fraction of requests that the store refuses, 0 to 0.9. Default ${default}."`
	URL        string        `name:"url" type:"address" placeholder:"URL" help:"URL of a RabbitMQ. Default: a broker in this process."`
	Verbose    bool          `help:"Log the workers on stderr."`
}

// Help implements kong.HelpProvider.
func (demoCmd) Help() string {
	return `Simulates the cover art indexer of MusicBrainz, with a broker and a store in this process, and shows failures,
retries and parked messages. Ctrl-C stops the events and waits for messages in flight. A second Ctrl-C stops
immediately. The final report proves that no message was lost.

Examples:
  reprise demo
  reprise demo --once --faults 0.6
  reprise demo --once --url amqp://guest:guest@localhost:5672/demo
`
}

// Run runs the demo.
func (c *demoCmd) Run(streams terminal.IO, stop *serve.Signals) (err error) {
	o := demo.Options{
		BrokerURL: c.URL, Once: c.Once, Events: c.Events, Seed: c.Seed, RetryDelay: c.RetryDelay, FaultRate: c.Faults,
		Out: streams.Stdout, StopWaiting: stop.Again,
	}
	if c.Faults == 0 {
		o.FaultRate = -1
	}
	switch {
	case c.Verbose:
		o.Logger = serve.LogFlags{LogLevel: slog.LevelInfo}.Logger(streams.Stderr)
	case c.URL != "":
		o.Logger = dial.Waiting(streams.Stderr, "waiting for the broker: %s", time.Minute)
	}
	if c.URL == "" {
		b, err := broker.New(broker.Config{})
		if err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			err = errors.Join(err, b.Shutdown(ctx))
		}()
		o.Dial = b.DialContext
	}
	return demo.Run(stop.Ctx, o)
}
