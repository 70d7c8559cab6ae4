// Package consolecmd implements reprise console and reprise notify: the archive with the web console, its tokens, and tests
// of its notifications.
package consolecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/database"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/outbox"
)

// Command is reprise console.
type Command struct {
	Run   runCmd   `cmd:"" default:"withargs" help:"Run the archive and the console (the default)."`
	Token tokenCmd `cmd:"" help:"Create a token for a user of the console."`
}

type runCmd struct {
	URL            string         `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default amqp://guest:guest@127.0.0.1:5600."`
	Queue          []string       `placeholder:"NAME" sep:"none" help:"Failed queue to archive. Repeatable. Default: all queues *.failed (requires --management)."`
	Discover       bool           `help:"Also archive queues whose messages a known framework has failed (requires --management)."`
	Archive        string         `env:"REPRISE_ARCHIVE" type:"address" placeholder:"STORE" help:"Database of the archive: sqlite:PATH or postgres://user:password@host/database. Default sqlite:reprise-failed.db."`
	Keep           *time.Duration `placeholder:"TIME" help:"Age at which the archive removes messages, such as 90d. Default: never."`
	Outbox         string         `type:"address" placeholder:"STORE" help:"Outbox to show: sqlite:PATH, postgres://… or mysql://…. Another process publishes its messages. Default: none."`
	OutboxPrefix   string         `name:"outbox-prefix" placeholder:"PREFIX" help:"First part of the names of the outbox's tables. Default reprise_outbox_."`
	Listen         string         `default:"${console}" placeholder:"ADDR" help:"Address of the console. Port 0 selects a free port. Default ${default}."`
	Tokens         string         `placeholder:"FILE" help:"File with the tokens of the users. Default: none, only local users have access."`
	Metrics        string         `placeholder:"ADDR" help:"Address of /metrics, /healthz and /readyz, such as 127.0.0.1:9090. Default: none."`
	Secure         bool           `help:"Require HTTPS for the session cookie. For a proxy with HTTPS."`
	Prefix         string         `placeholder:"PATH" help:"Path prefix of the console's URLs, such as /reprise. The proxy must not remove the prefix. Default: none."`
	TraceURL       string         `placeholder:"URL" help:"URL of a trace, such as https://traces.example.com/trace/{trace_id}. Messages with a header traceparent link to it. Default: none."`
	Management     string         `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"URL of the broker's management API, for live figures, failed queues, the ledger and replays through an exchange."`
	Notify         string         `placeholder:"FILE" help:"YAML file with the webhooks of notifications under notify:, and the base URL of links as console: {url: …}."`
	serve.LogFlags `group:"Log:"`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Moves messages from failed queues to the archive and serves the console, which searches, edits, replays
and discards archived messages. The first line on stdout is the URL of the console. reprise failed uses the same
console. The archive stores each message before it acknowledges the delivery. A message that fails again after a
replay enters the archive again.

Several consoles may share an archive. Only one console at a time handles a failed queue or a replay. If that
console stops, another console takes over. Use --management for only one console, because this console maintains
the ledger.

With --discover, it finds the dead-letter and error queues of NServiceBus, MassTransit, Spring, Celery, Symfony
Messenger, Rebus, EasyNetQ, rascal, Watermill, Wolverine, dramatiq and Reprise, and REMOVES THEIR MESSAGES into the
archive. It takes a queue without consumers if its first message records the failure of one of these frameworks, and
stops for good when another program uses the queue. It only lists all other queues that may be dead-letter queues, in
the log and in the overview, with the option --queue that takes them. Before RabbitMQ 4.3, it does not look into
quorum queues with a delivery limit, because each look counts. The preview of a replay shows the destinations.

Examples:
  reprise console --management http://guest:guest@127.0.0.1:15672 --discover
  reprise console --queue orders.failed --queue mails.failed
  reprise console --management http://guest:guest@127.0.0.1:15672
  reprise console --url amqp://app:secret@rabbit --queue orders.failed \
      --archive postgres://app:secret@db/failed --keep 90d
  reprise console --listen 0.0.0.0:15600 --tokens tokens --queue orders.failed
  reprise console token anna --role operate --tokens tokens
`
}

// Help returns the help of the parent command.
func (runCmd) Help() string { return Command{}.Help() }

// Run runs the console until a signal arrives.
func (c *runCmd) Run(streams terminal.IO, stop *serve.Signals) error {
	log := c.Logger(streams.Stderr)
	cfg, err := c.config()
	if err != nil {
		return err
	}
	d, err := archiving.New(cfg, log)
	if err == nil {
		err = d.Check()
	}
	if err != nil {
		return exit.Usage(err)
	}
	warning := d.LinkWarning()
	stop.Serve(log)
	defer d.Close()
	if err := d.Open(); err != nil {
		return err
	}
	checks, _, unserve, err := health.Serve(stop.Ctx.Done(), c.Metrics, nil, log, d.Stores()...)
	if err != nil {
		return err
	}
	defer unserve()
	d.Serve(checks.Metrics.Notified)
	if warning != "" {
		log.Warn(warning)
	}
	if _, err := fmt.Fprintln(streams.Stdout, d.LocalURL); err != nil {
		return fmt.Errorf("cannot print the URL: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop.Unless(c.serve(stop.Ctx, d, checks, log)) }()
	select {
	case err := <-ended:
		return err
	case <-stop.Again:
		return errors.New("stopped immediately; messages that are not archived remain in their queues")
	}
}

// serve runs the archive until ctx is canceled. The console works before the broker is reachable.
func (c *runCmd) serve(ctx context.Context, d *archiving.Service, checks *health.Checks, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	connecting := make(chan *reprise.Client, 1)
	go func() {
		defer close(connecting)
		client, err := dial.Broker(ctx, c.URL, &reprise.Config{Logger: log, Name: "reprise console", Observer: checks.Metrics})
		if err != nil {
			cancel(err)
			return
		}
		checks.Works(client, nil)
		d.Connect(client)
		connecting <- client
	}()
	err := d.Run(ctx, cancel)
	cancel(err)
	if client := <-connecting; client != nil {
		dial.HangUp(client, dial.CloseTimeout) // archived messages are safe, and the broker redelivers the others
	}
	return cmp.Or(err, context.Cause(ctx))
}

// config returns the configuration that the flags specify.
func (c *runCmd) config() (archiving.Config, error) {
	url := cmp.Or(c.URL, dial.DefaultURL)
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(url)); ok {
		return archiving.Config{}, exit.Usagef("--url: %s", bad.Reason)
	}
	cfg := archiving.Config{
		Store: cmp.Or(c.Archive, database.DefaultArchive), Listen: c.Listen, Flag: "--listen", Tokens: c.Tokens,
		Settings: archive.Config{Queues: c.Queue, Discover: c.Discover, Console: archive.Console{Secure: c.Secure, Prefix: c.Prefix, TraceURL: c.TraceURL}},
	}
	a := &cfg.Settings
	for i, queue := range c.Queue {
		switch {
		case queue == "":
			return cfg, exit.Usagef("--queue must not be empty (set the failed queue, such as orders.failed)")
		case slices.Contains(c.Queue[:i], queue):
			return cfg, exit.Usagef("--queue must not contain %q twice", queue)
		}
	}
	if c.Discover && c.Management == "" {
		return cfg, exit.Usagef("--discover requires --management URL")
	}
	if len(c.Queue) == 0 && c.Management == "" {
		return cfg, exit.Usagef("failed queues are required (use --queue NAME for each, or --management URL to find all *.failed)")
	}
	var err error
	if c.Outbox != "" {
		if cfg.Outbox, err = archiving.NewOutbox(c.Outbox, outbox.Config{Prefix: c.OutboxPrefix}); err != nil {
			return cfg, exit.Usagef("--outbox: %w", err)
		}
	} else if c.OutboxPrefix != "" {
		return cfg, exit.Usagef("--outbox-prefix requires --outbox")
	}
	if a.Keep, err = flags.AtLeast(time.Hour, "--keep", c.Keep); err != nil {
		return cfg, err
	}
	if c.Tokens != "" {
		if a.Console.Tokens, err = archiving.ReadTokens(c.Tokens); err != nil {
			return cfg, exit.Usagef("--tokens: %w", err)
		}
	}
	if c.Notify != "" {
		var notify *config.Notify
		if notify, a.Console.URL, err = config.LoadNotify(c.Notify); err != nil {
			return cfg, exit.Usagef("--notify: %w", err)
		}
		if a.Notify, err = archiving.Notify(notify); err != nil {
			return cfg, exit.Usage(err)
		}
	}
	if c.Management != "" {
		m, err := dial.Management("--management", c.Management, dial.VirtualHost(url))
		if err != nil {
			return cfg, err
		}
		a.Management = (*archive.Management)(m)
	}
	return cfg, nil
}
