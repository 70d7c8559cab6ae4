// Package serve implements the flag -serve of the examples. With this flag, an example handles the messages of other
// programs in the queues of its design until the user interrupts the example. It prints the result of each message and,
// at the end, the totals.
//
// Unless the example has its own handler, the handler accepts any body. The flag -fail-first sets the number of failing attempts of each message. A body can
// override this number:
//
//	fails=2                 the first two attempts fail, in all programs
//	{"job":7,"fails":2}     the same, in JSON
//	fails=-1                all attempts fail
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

// ErrAlone is returned for the flag -serve if other programs cannot reach the broker.
var ErrAlone = errors.New("-serve requires a broker that other programs can reach (pass -listen 127.0.0.1:5600, or the -url of a RabbitMQ)")

// Flags contains the flags -serve and -fail-first, which all examples have.
type Flags struct {
	Serve     bool
	FailFirst int // number of failing attempts of each message; Never: all
}

// Define registers the flags.
func (f *Flags) Define() {
	flag.BoolVar(&f.Serve, "serve", false, "publish nothing, and handle messages of other programs until interrupted; the delays of the design are the default")
	flag.IntVar(&f.FailFirst, "fail-first", 0, "with -serve: number of failing attempts of each message, -1 for all; fails=`n` in a body overrides it")
}

// Validate returns an error if FailFirst is invalid, or set without Serve.
func (f *Flags) Validate() error {
	switch {
	case f.FailFirst != 0 && !f.Serve:
		return errors.New("-fail-first requires -serve")
	case f.FailFirst < Never:
		return fmt.Errorf("-fail-first must be positive, or -1 for all attempts: got %d", f.FailFirst)
	}
	return nil
}

// Service is a set of workers on queues that other programs also use.
type Service struct {
	Design    topology.Topology      // declared by Run and by the workers
	Workers   []reprise.WorkerConfig // one for each queue; Run sets Topology, and a missing Handler to the one of the package
	FailFirst int                    // as in Flags

	// Intro describes the delays. Run prints it after the declarations.
	Intro string

	// Flags lists the flags that determine the arguments of the queues, for the error message if queues exist with
	// other arguments.
	Flags string

	Out io.Writer
}

// Run handles messages until ctx is canceled. It returns an error if a worker fails or a message has no outcome.
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

// work runs all workers until ctx is canceled or one of them fails. If one worker fails, work stops the other workers,
// because the queues belong to one design.
func (s Service) work(ctx context.Context, client *reprise.Client, l *log) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers []*reprise.Worker
	for _, config := range s.Workers {
		config.Topology = s.Design
		if config.Handler == nil {
			config.Handler = rule(s.FailFirst)
		}
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
