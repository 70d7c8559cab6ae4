package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/config"
)

type upCmd struct {
	Config string `short:"c" default:"reprise.yaml" placeholder:"FILE" help:"The configuration. Default ${default}."`
	Check  bool   `help:"Say what is wrong with the configuration, and stop."`
	logFlags
}

// Help shows examples below the flags.
func (upCmd) Help() string {
	return `Each worker of the file consumes one queue and gives its messages to a program (exec) or a
service (http). Messages that fail come back later; those without retries left are parked in
QUEUE.failed. A file without "broker:" gets a broker in this process, with its data in the
directory reprise-data beside the file, or where "data:" says.

Ctrl-C (or SIGTERM) drains: running handlers finish, other messages go back untouched. A second
Ctrl-C ends at once.

Example of a file; docs/reprise.example.yaml has every key:
  workers:
    - queue: orders
      http: http://127.0.0.1:8080/orders
    - queue: thumbnails
      exec: [./thumbnail.py, --fast]
      backoff: {initial: 5s, max: 10m}
`
}

// Run runs the workers until a signal comes.
func (c *upCmd) Run(streams IO, stop *signals) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return usageError{err}
	}
	log := c.logger(streams.Stderr)
	handlers, err := newHandlers(cfg, log)
	if err != nil {
		return usageError{err}
	}
	defer handlers.close()
	if c.Check {
		_, err := fmt.Fprintf(streams.Stdout, "%s: ok, %s\n", c.Config, plural(len(cfg.Workers), "worker"))
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- c.run(stop, cfg, handlers, log) }()
	select {
	case err := <-ended:
		return err
	case <-stop.again:
		// Whatever is not settled is delivered again. Programs would live on as
		// orphans; everything else ends with this process.
		handlers.kill()
		return errors.New("ended at once; what was running is delivered again")
	}
}

// run connects to the broker, or starts one, and runs the workers on it.
func (c *upCmd) run(stop *signals, cfg *config.Config, handlers *handlers, log *slog.Logger) (err error) {
	client, hangUp, err := connect(stop, cfg, log)
	if err != nil {
		if stop.ctx.Err() != nil {
			return nil // Ctrl-C while there is no broker yet: nothing was begun
		}
		return err
	}
	defer func() { err = errors.Join(err, hangUp()) }()

	var workers []*reprise.Worker
	for i, w := range cfg.Workers {
		w.Handler = handlers.of[i]
		worker, err := reprise.NewWorker(client, w.WorkerConfig)
		if err != nil {
			return usageError{err}
		}
		workers = append(workers, worker)
	}
	running, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		select {
		case <-stop.ctx.Done():
			log.Info("draining: running handlers finish, other messages go back (Ctrl-C again ends at once)")
			end()
		case <-running.Done():
		}
	}()
	return runAll(running, end, cfg, workers)
}

// runAll runs workers until the context ends or one of them fails, which ends
// the others, too.
func runAll(ctx context.Context, end context.CancelFunc, cfg *config.Config, workers []*reprise.Worker) error {
	errs := make([]error, len(workers))
	var wg sync.WaitGroup
	for i, w := range workers {
		wg.Go(func() {
			if err := w.Run(ctx); err != nil {
				errs[i] = fmt.Errorf("queue %s: %w", cfg.Workers[i].Queue, err)
			}
			end()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeTimeout is how long the client has to close its connections.
const closeTimeout = 5 * time.Second

// connect returns a client of the configured broker or of an embedded one, and
// how to end both.
func connect(stop *signals, cfg *config.Config, log *slog.Logger) (*reprise.Client, func() error, error) {
	options := &reprise.Config{Logger: log, Name: "reprise up"}
	hangUp := func(c *reprise.Client) {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = c.Close(ctx) // the workers have ended; the connections go with the process
	}
	if cfg.Broker != "" {
		client, err := dial(stop.ctx, cfg.Broker, options)
		if err != nil {
			return nil, nil, err
		}
		return client, func() error { hangUp(client); return nil }, nil
	}
	b, err := startEmbedded(stop, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	options.Dial = b.DialContext
	client, err := dial(stop.ctx, b.url, options)
	if err != nil {
		return nil, nil, errors.Join(err, b.end(stop, log))
	}
	return client, func() error {
		hangUp(client)
		return b.end(stop, log)
	}, nil
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
