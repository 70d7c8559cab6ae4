// Package serve is what the programs in the examples do with -serve: work on the
// queues of their design for what other programs publish, until somebody
// interrupts them. They say what comes of each message, and in the end the balance.
//
// The handler takes any body, and fails as often as it is told to: by -fail-first,
// for every message, or by the message itself, anywhere in its body, which no
// design looks into and every program passes on:
//
//	fails=2                 the first two attempts fail, whoever makes them
//	{"job":7,"fails":2}     the same, in JSON
//	fails=-1                all of them
package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/topology"
)

// ErrAlone says that there is nobody to serve.
var ErrAlone = errors.New("-serve requires a broker that other programs can reach (pass -listen 127.0.0.1:5672, or the -url of a RabbitMQ)")

// Flags are the two that every program has.
type Flags struct {
	Serve     bool
	FailFirst int // attempts of each message; Never: all
}

// Define defines them.
func (f *Flags) Define() {
	flag.BoolVar(&f.Serve, "serve", false, "publish nothing, and handle messages of other programs until interrupted; the delays of the design are the default")
	flag.IntVar(&f.FailFirst, "fail-first", 0, "with -serve: number of failing attempts of each message, -1 for all; fails=`n` in a body overrides it")
}

// Validate reports flags that do not go together.
func (f *Flags) Validate() error {
	switch {
	case f.FailFirst != 0 && !f.Serve:
		return errors.New("-fail-first requires -serve")
	case f.FailFirst < Never:
		return fmt.Errorf("-fail-first must be positive, or -1 for all attempts: got %d", f.FailFirst)
	}
	return nil
}

// Service is workers on queues that others know, too.
type Service struct {
	Design    topology.Topology      // declared first, and in this way by the workers
	Workers   []reprise.WorkerConfig // one for each queue; the Handler is the Service's own
	FailFirst int                    // as in Flags

	// Intro is written when everything is declared: on what terms it works.
	Intro string

	// Flags says which flags make the program declare things as they are.
	Flags string

	Out io.Writer
}

// Run works until ctx ends. An error means that it could not, or that the balance
// does not come out.
func (s Service) Run(ctx context.Context, on *stage.Stage) (err error) {
	if !on.Shared {
		return ErrAlone
	}
	l := newLog(s.Out, s.Workers)
	client, err := reprise.Dial(ctx, on.URL, &reprise.Config{Dial: on.DialContext, Logger: on.Logger, Observer: l})
	if err != nil {
		return err
	}
	background := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, client.Close(background)) }()
	if err := client.Declare(ctx, s.Design); err != nil {
		if _, refused := errors.AsType[*reprise.DeclareError](err); refused && s.Flags != "" {
			err = fmt.Errorf("%w\n(here, pass its settings with %s)", err, s.Flags)
		}
		return err
	}
	fmt.Fprintf(s.Out, "%s\n\n", s.Intro)
	if err := s.work(ctx, client, l); err != nil {
		return err
	}
	return l.balance()
}

// work has all workers work until ctx ends, or one of them cannot: then the others
// are of no use, since the queues are of one design.
func (s Service) work(ctx context.Context, client *reprise.Client, l *log) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers []*reprise.Worker
	for _, config := range s.Workers {
		config.Topology = s.Design
		config.Handler = rule(s.FailFirst)
		w, err := reprise.NewWorker(client, config)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	ended := make(chan error)
	for _, w := range workers {
		go func() { ended <- w.Run(ctx) }()
	}
	var errs []error
	for range workers {
		errs = append(errs, <-ended)
		stop()
	}
	return errors.Join(errs...)
}
