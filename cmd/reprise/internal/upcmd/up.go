// Package upcmd implements reprise up, which runs the workers of a configuration file.
package upcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/cmd/reprise/internal/version"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

// Command is reprise up.
type Command struct {
	Config         []string `short:"c" sep:"none" default:"reprise.yaml" placeholder:"FILE" help:"Configuration file, or directory of such files. Repeatable. Default ${default}."`
	Check          bool     `help:"Only check the configuration and its files."`
	Connect        bool     `help:"With --check, also ask the broker whether existing queues and exchanges conflict, whether the user may create missing ones, whether existing work queues can lose messages, and whether the destinations of outbox:, cron: and results: exist; and try the database of outbox:. This declares and changes nothing."`
	serve.LogFlags `group:"Log:"`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Each worker of the file consumes one queue and passes its messages to a service (http), a program per message (exec) or
programs that keep running (process). Failed messages are retried; messages without further retries move to the failed
queue QUEUE.failed. Without "broker:" in the file, reprise runs a broker in this process and stores its data in the
directory reprise-data next to the file, or in the directory of "data:".

The workers, exchanges and cron entries of several files, or of the files *.yaml and *.yml of a directory, form one
configuration.
Every other key may be in one of the files. Relative paths are relative to the directory of their file. -c - reads
standard input.

Ctrl-C (or SIGTERM) drains: running handlers finish, and other messages return to their queues. A second Ctrl-C stops
immediately.

Example of a file; docs/reprise.example.yaml has all keys:
  workers:
    - queue: orders
      http: http://127.0.0.1:8080/orders
    - queue: thumbnails
      exec: [./thumbnail.py, --fast]
      backoff: {initial: 5s, max: 10m}
    - queue: charges
      process: [python3, charge.py]
      concurrency: 10

A program of "process:" writes the line {"ready":true} to its stdout. Then it reads a line of JSON per message from its
stdin, and writes a line with the id of the message and the result, in any order:
  in   {"id":1,"queue":"charges","routing_key":"charges","attempt":1,"message_id":"m-1","headers":{"tenant":"a"},"body":"…"}
  out  {"id":1,"result":"done"}
       {"id":1,"result":"retry","error":"the bank is closed","retry_after":600}
       {"id":1,"result":"park","error":"no such customer"}
The other keys are those of the environment variables of exec, in lower case. A body that is not UTF-8 is in body_base64
instead of body. With "results:", an answer with the result done can have a reply. Before the
answer, lines such as {"id":1,"progress":0.4,"text":"page 4 of 10"} and {"id":1,"alive":true} show operators what goes on. Flush the output after each line, and write logs to stderr.
`
}

// Run runs the workers until a signal arrives.
func (c *Command) Run(streams terminal.IO, stop *serve.Signals) error {
	cfg, err := load(stop.Ctx, c.Config)
	if err != nil {
		return err
	}
	log := c.Logger(streams.Stderr)
	parts, err := newParts(cfg, log)
	if err != nil {
		return exit.Usage(err)
	}
	warnings := slices.DeleteFunc(append(parts.warnings, leftoverMessages(cfg), parts.archive.LinkWarning(), unserved(cfg)), func(s string) bool { return s == "" })
	if c.Connect && !c.Check {
		return exit.Usagef("--connect requires --check")
	}
	if c.Check {
		defer parts.close()
		defer closeAll(parts.workers)
		return c.check(stop.Ctx, streams, cfg, parts, warnings, log)
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	stop.Serve(log)
	hangup := stop.Hangup()
	ended := make(chan error, 1)
	go func() {
		err := c.run(stop, hangup, cfg, parts, log)
		closeAll(parts.workers) // of the start; already closed if they have run
		parts.close()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-stop.Again:
		// Programs would continue as orphans. Everything else stops with this process, and the broker redelivers
		// unsettled messages.
		parts.kill()
		return errors.New("stopped immediately; unsettled messages are redelivered")
	}
}

// load reads a configuration, unless a signal arrives: a terminal or a FIFO may never end.
func load(ctx context.Context, paths []string) (*config.Config, error) {
	var cfg *config.Config
	read := make(chan error, 1)
	go func() { // the read cannot be interrupted; the goroutine runs until the process exits
		var err error
		if cfg, err = config.Load(paths...); err != nil {
			err = exit.Usage(err)
		}
		read <- err
	}()
	select {
	case err := <-read:
		return cfg, err
	case <-ctx.Done():
		return nil, errors.New("interrupted while reading the configuration")
	}
}

// run connects to a broker or starts one, and runs the workers.
func (c *Command) run(stop *serve.Signals, hangup <-chan struct{}, cfg *config.Config, parts *parts, log *slog.Logger) (err error) {
	if parts.archive != nil {
		if err := parts.archive.Open(); err != nil {
			return err
		}
	}
	stores := slices.Concat(parts.stores.parts(), parts.archive.Stores(), parts.outbox.stores())
	checks, web, unserve, err := health.Serve(stop.Ctx.Done(), cfg.Metrics, parts.telemetry, log, stores...)
	if err != nil {
		return err
	}
	defer unserve()
	if parts.archive != nil {
		parts.archive.Serve(checks.Metrics.Notified)
	}
	// The configuration is valid, and the ports are open. The broker and the databases can still be unavailable.
	if err := notifySystemd("READY=1"); err != nil {
		log.Warn("cannot report readiness", "error", err)
	}
	if err := parts.stores.prepare(stop.Ctx, log); err != nil {
		return stop.Unless(err)
	}
	client, hangUp, err := connect(stop, cfg, checks, parts, log)
	if err != nil {
		return stop.Unless(err)
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	parts.results.connect(client, checks.Metrics.Result)
	// After the embedded broker, to which programs may connect, and before the workers.
	if err := startAll(stop.Ctx, parts.workers); err != nil {
		return stop.Unless(err)
	}
	crew, err := newCrew(cfg, parts, client, checks, log)
	if err != nil {
		return exit.Usage(err)
	}
	parts.crew.Store(crew)
	defer crew.close()
	var group reprise.Group
	group.Add(parts.archive.Runner())
	group.Add(parts.outbox.runner(client))
	group.Add(crew) // the workers stop before the archive service, which archives the messages that they park last
	group.Add(reprise.RunnerFunc(func(ctx context.Context) error {
		left, err := parts.unconsumed(ctx)
		if err != nil {
			log.Debug("cannot list the queues", "error", err)
		}
		for _, text := range left {
			log.Warn("messages are not consumed", "reason", text)
		}
		<-ctx.Done()
		return nil
	}))
	group.Add(reprise.RunnerFunc(func(ctx context.Context) error {
		newReloader(c.Config, cfg, crew, log).serve(ctx, hangup)
		return nil
	}))
	group.Add(reprise.RunnerFunc(func(ctx context.Context) error {
		select {
		case err := <-web.Failed: // a failure of the web server does not stop the workers
			log.Error("server of metrics and health stopped", "error", err)
			<-ctx.Done()
		case <-ctx.Done():
		}
		if stop.Ctx.Err() != nil {
			log.Info("draining: running handlers finish, other messages are requeued (press Ctrl-C again to stop immediately)")
		}
		return nil
	}))
	return group.Run(stop.Ctx)
}

// interruptedHandlers counts the handlers that were canceled because a drain timed out. Worker.Run returns nil after
// such a drain, because the messages were requeued.
type interruptedHandlers struct{ handlers atomic.Int64 }

func (c *interruptedHandlers) middleware(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		err := next.Handle(ctx, m)
		if err != nil && errors.Is(context.Cause(ctx), reprise.ErrDrainTimeout) {
			c.handlers.Add(1)
		}
		return err
	})
}

func (c *interruptedHandlers) error() error {
	if n := c.handlers.Load(); n > 0 {
		return fmt.Errorf("the drain timeout interrupted %s; their messages were requeued", terminal.Plural(int(n), "handler"))
	}
	return nil
}

// connect returns a client of the configured broker or of an embedded broker, and a function that closes the client
// and stops the embedded broker, if any.
func connect(stop *serve.Signals, cfg *config.Config, checks *health.Checks, parts *parts, log *slog.Logger) (*reprise.Client, func() error, error) {
	options := &reprise.Config{Logger: log, Name: "reprise up", Announce: !cfg.Silent, Version: version.String()}
	options.Observer = parts.archive.Observe(parts.telemetry.Observe(checks.Metrics))
	url, endBroker := cfg.Broker, func() error { return nil }
	if url == "" {
		b, err := startEmbedded(stop, cfg, log)
		if err != nil {
			return nil, nil, err
		}
		checks.HasBroker(b.Metrics())
		figures := parts.archive.ServeFigures(b.Management())
		endBroker = func() error {
			figures.Stop()
			return b.end(stop, log)
		}
		url, options.Dial = b.url, b.DialContext
	} else if addresses, err := amqpconn.ParseURL(url); err == nil {
		checks.Dials(addresses.String())
	}
	options.Inspect = parts.archive.Inspector()
	client, err := dial.Broker(stop.Ctx, url, options)
	if err != nil {
		return nil, nil, errors.Join(err, endBroker())
	}
	return client, func() error {
		dial.HangUp(client, dial.CloseTimeout)
		return endBroker()
	}, nil
}

// notifySystemd sends a state, such as READY=1, to systemd if the unit has Type=notify. See sd_notify(3).
func notifySystemd(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("cannot notify the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("cannot notify the service manager: %w", err)
	}
	return nil
}
