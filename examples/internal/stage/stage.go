// Package stage starts the examples. It parses the flags, starts a broker in the process unless the flag -url specifies
// another broker, and cancels the context when the user interrupts the program. With -listen, other programs can use
// the broker in the process.
//
//	func main() {
//		stage.Main(func(ctx context.Context, s *stage.Stage) error {
//			client, err := s.Dial(ctx)
//			…
//		})
//	}
package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/retry"
)

// Stage contains the broker and the logger of an example.
type Stage struct {
	// URL is the URL of the broker. Clients of a broker in the process also require DialContext.
	URL string

	// DialContext opens connections to the broker in the process. It is nil with -url.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	// Shared is set if other programs can reach the broker, because of -url or -listen.
	Shared bool

	// Logger is the logger for clients and workers. It writes to stderr with -verbose, and discards its output
	// otherwise.
	Logger *slog.Logger

	clean bool
}

// Embedded reports whether the broker runs in this process.
func (s *Stage) Embedded() bool { return s.DialContext != nil }

// Dial connects a client. The caller must close the client.
func (s *Stage) Dial(ctx context.Context) (*reprise.Client, error) {
	return reprise.Dial(ctx, s.URL, &reprise.Config{Dial: s.DialContext, Logger: s.Logger})
}

// Main is the main function of an example. It parses the flags, including flags that the example has defined before,
// creates the Stage, and calls run. An interrupt cancels the context of run. If run returns an error, the exit code is
// 1.
func Main(run func(ctx context.Context, s *Stage) error) {
	url := Address("url", "a RabbitMQ to run on, `amqp://user:password@host:5672/vhost`; default: a broker in this process")
	listen := Address("listen", "address `host:port` of the broker in this process, for other programs on this machine, such as 127.0.0.1:5600; default: none")
	verbose := flag.Bool("verbose", false, "print the log of clients and workers on stderr")
	var s Stage
	flag.BoolVar(&s.clean, "clean", false, "at the end, delete the queues and exchanges that did not exist before, with their messages")
	flag.Parse()
	err := s.perform(*url, *listen, *verbose, run)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
}

// Address defines a flag for an address, which must not be empty. In -url "$(scripts/rabbitmq start 4.3)", an empty
// address is the result of a failed command, so the program must not use the broker in the process instead.
func Address(name, usage string) *string {
	var address string
	flag.Func(name, usage, func(given string) error {
		if address = given; given == "" {
			return fmt.Errorf("must not be empty (remove -%s for the default)", name)
		}
		return nil
	})
	return &address
}

func (s *Stage) perform(url, listen string, verbose bool, run func(context.Context, *Stage) error) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q (use flags, see -help)", flag.Arg(0))
	}
	for _, side := range []string{"serve", "send"} {
		if f := flag.Lookup(side); s.clean && f != nil && f.Value.String() == "true" {
			return fmt.Errorf("-clean excludes -%s, because other programs use these queues", side)
		}
	}
	s.URL, s.Shared, s.Logger = url, url != "" || listen != "", slog.New(slog.DiscardHandler)
	if verbose {
		s.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	switch {
	case url == "":
		end, embedErr := s.embed(listen)
		if embedErr != nil {
			return embedErr
		}
		defer func() { err = errors.Join(err, end()) }()
	case listen != "":
		return errors.New("-listen and -url exclude each other (-listen is for the broker in this process, -url for another broker)")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C exits immediately
	if url != "" {
		if err := reach(ctx, url); err != nil {
			return err
		}
	}
	return run(ctx, s)
}

// reach waits until the broker is reachable. Until then, it prints the reason for the wait, because the clients of the
// examples do not log the reason.
func reach(ctx context.Context, url string) error {
	client, err := reprise.Dial(ctx, url, &reprise.Config{Logger: retry.ReasonLogger(time.Minute, func(reason string) {
		fmt.Fprintf(os.Stderr, "waiting for the broker: %s\n", reason)
	})})
	if err != nil {
		return err
	}
	return client.Close(ctx)
}

// embed starts a broker in this process and returns a function that stops it.
func (s *Stage) embed(listen string) (end func() error, err error) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		return nil, err
	}
	served := make(chan error, 1)
	if listen == "" {
		served <- nil
	} else {
		l, err := listenHere(listen)
		if err != nil {
			return nil, fmt.Errorf("-listen %s: %w", listen, err)
		}
		fmt.Fprintf(os.Stderr, "address of the broker: amqp://guest:guest@%s\n", l.Addr())
		go func() { served <- b.Serve(l) }()
	}
	s.URL, s.DialContext = "amqp://guest:guest@embedded/", b.DialContext
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := b.Shutdown(ctx)
		if serveErr := <-served; !errors.Is(serveErr, broker.ErrClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	}, nil
}

// listenHere listens on addr, which must be a loopback address, because the broker of an example has the default
// password.
func listenHere(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return nil, errors.Join(errors.New("a broker with the user guest and the password guest must listen on a loopback address (use 127.0.0.1:5600)"), l.Close())
	}
	return l, nil
}
