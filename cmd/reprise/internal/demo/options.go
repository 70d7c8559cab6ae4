package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/reprisemq/reprise/topology/preset"
)

// Defaults of Options.
const (
	DefaultEvents     = 60
	DefaultSpread     = 5 * time.Second
	DefaultRetryDelay = 2 * time.Second
	DefaultGrace      = 300 * time.Millisecond
	DefaultFaultRate  = 0.2
)

// Embedded is a broker in this process.
type Embedded struct {
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Queues func() []Depth // what the broker's queues have now
}

// Depth is what a queue has at a moment.
type Depth struct {
	Name    string
	Ready   int
	Unacked int // Unknown where the broker does not tell
}

// Unknown is an Unacked that nobody told.
const Unknown = -1

// Options are the settings of Run. Out, and one of Embedded and BrokerURL, are
// required.
type Options struct {
	Embedded  *Embedded
	BrokerURL string // a RabbitMQ, amqp://user:password@host:5672/vhost

	// Once ends the run when Events events have been published and dealt with.
	// Without it events are produced until the context ends.
	Once   bool
	Events int           // default 60
	Spread time.Duration // time it takes to publish Events events; default 5 s
	Seed   uint64        // of the events and the store's moods; default: another one each time

	RetryDelay time.Duration // default 2 s; the design has 4 h
	Grace      time.Duration // how long an event waits for duplicates; default 300 ms; the design has 10 s
	FaultRate  float64       // share of requests the store refuses; default 0.2, negative for none
	Latency    time.Duration // the longest the store takes for an answer; default 40 ms, negative for none

	Out    io.Writer
	Plain  bool         // lines, also when Out is a terminal
	Logger *slog.Logger // of the worker library and the indexer; default: none

	// Hurry, once closed, ends the wait for messages that are still under way:
	// they are counted as waiting.
	Hurry <-chan struct{}

	// patience is how long nothing may happen, with messages unaccounted for
	// and nothing in any queue, before the run gives them up and counts.
	patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Events == 0 {
		o.Events = DefaultEvents
	}
	if o.Spread == 0 {
		o.Spread = DefaultSpread
	}
	if o.Seed == 0 {
		o.Seed = uint64(rand.Uint32N(9999)) + 1 // short enough to type in
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = DefaultRetryDelay
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.FaultRate == 0 {
		o.FaultRate = DefaultFaultRate
	}
	if o.Latency == 0 {
		o.Latency = 40 * time.Millisecond
	}
	if o.patience == 0 {
		o.patience = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// validate reports what cannot work and what to write instead.
func (o Options) validate() error {
	switch {
	case o.Out == nil:
		return errors.New("demo: Options.Out is nil: say where to write, for example os.Stdout")
	case (o.Embedded == nil) == (o.BrokerURL == ""):
		return errors.New("demo: give either Options.Embedded or Options.BrokerURL")
	case o.Events < 1:
		return fmt.Errorf("demo: %d events: use at least 1", o.Events)
	case o.Spread < 0 || o.Grace < 0:
		return fmt.Errorf("demo: spread %s, grace %s: durations cannot be negative", o.Spread, o.Grace)
	case o.FaultRate > maxFaultRate:
		return fmt.Errorf("demo: fault rate %v: use a share of the requests, %v at most", o.FaultRate, maxFaultRate)
	}
	return o.design().Validate()
}

// maxFaultRate leaves the store a chance to answer.
const maxFaultRate = 0.9

// design is the published topology, with the delay of this run.
func (o Options) design() preset.CoverArt { return preset.CoverArt{RetryDelay: o.RetryDelay} }
