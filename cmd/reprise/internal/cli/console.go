package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/console"
	"github.com/reprisemq/reprise/failed"
)

// defaultConsole is the default address of a console, also for reprise failed.
const defaultConsole = "127.0.0.1:15600"

type consoleCmd struct {
	Run   consoleRunCmd `cmd:"" default:"withargs" help:"Run the archive and its console. This is what console does by itself."`
	Token tokenCmd      `cmd:"" help:"Make a token, by which somebody gets in."`
}

type consoleRunCmd struct {
	URL        string         `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"The broker. Default amqp://guest:guest@127.0.0.1:5672."`
	Queue      []string       `placeholder:"NAME" sep:"none" help:"A failed queue to empty into the archive. Repeatable. Default: all *.failed, which takes --management."`
	Archive    string         `env:"REPRISE_ARCHIVE" type:"address" placeholder:"STORE" help:"Where messages are kept: sqlite:PATH or postgres://user:password@host/database. Default sqlite:reprise-failed.db."`
	Keep       *time.Duration `placeholder:"TIME" help:"Remove messages from the archive after this time, such as 90d. Default: never."`
	Listen     string         `default:"${console}" placeholder:"ADDR" help:"Address of the console; port 0 takes any that is free. Default ${default}."`
	Tokens     string         `placeholder:"FILE" help:"Let only those in who have a token of this file. Default: everybody on this machine."`
	Metrics    string         `placeholder:"ADDR" help:"Serve /metrics, /healthz and /readyz at this address, such as 127.0.0.1:9090. Default: nowhere."`
	Secure     bool           `help:"Browsers come by HTTPS, through a proxy: the session's cookie travels no other way."`
	Prefix     string         `placeholder:"PATH" help:"Path prefix of the console's URLs, such as /reprise, for a proxy that serves other sites at the same host. The proxy keeps it. Default: none."`
	TraceURL   string         `placeholder:"URL" help:"URL of a trace, such as https://traces.example.com/trace/{trace_id}, for links from messages with the header traceparent. Default: no links."`
	Management string         `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"The broker's management API, for live figures, to find failed queues, and to send messages back by exchange and key."`
	Notify     string         `placeholder:"FILE" help:"Send notifications to the webhooks of this YAML file, below notify:. Links in them begin with console: url: of the file, if it has one."`
	logFlags
}

// Help shows examples below the flags.
func (consoleCmd) Help() string {
	return `Empties failed queues into an archive, where messages can be searched, edited, sent back and discarded:
in a browser at the URL that it prints, or with reprise failed. Each message is in the archive before it
is taken out of its queue. A message that fails again after it was sent back comes in again.

Several may work on one archive: each failed queue, and each replay, is one's at a time, and another goes
on where that one has ended. Give --management to one of them: the ledger is for one.

Examples:
  reprise console --queue orders.failed --queue mails.failed
  reprise console --management http://guest:guest@127.0.0.1:15672
  reprise console --url amqp://app:secret@rabbit --queue orders.failed \
      --archive postgres://app:secret@db/failed --keep 90d
  reprise console --listen 0.0.0.0:15600 --tokens tokens --queue orders.failed
  reprise console token anna --role operate --tokens tokens
`
}

// Help returns the help of the parent command.
func (consoleRunCmd) Help() string { return consoleCmd{}.Help() }

// Run runs the console until a signal arrives.
func (c *consoleRunCmd) Run(streams IO, stop *signals) error {
	log := c.logger(streams.Stderr)
	cfg, url, err := c.config()
	if err != nil {
		return err
	}
	d, err := newDesk(cfg, log)
	if err != nil {
		return usageError{err}
	}
	stop.serve(log)
	defer d.close()
	health, _, unserve, err := serveHealth(stop.ctx.Done(), c.Metrics, log, d.parts()...)
	if err != nil {
		return err
	}
	defer unserve()
	d.notified = health.metrics.Notified
	if err := d.serve(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(streams.Stdout, d.here); err != nil {
		return fmt.Errorf("cannot print the URL: %w", err)
	}
	var client *reprise.Client
	ended := make(chan error, 1)
	go func() {
		err := d.run(stop.ctx, func(ctx context.Context) (*reprise.Client, error) {
			var err error
			client, err = dial(ctx, url, &reprise.Config{Logger: log, Name: "reprise console", Observer: health.metrics})
			if err == nil {
				health.works(client, nil)
			}
			return client, err
		})
		if client != nil {
			hangUp(client, closeTimeout) // archived messages are safe, and the broker redelivers the others
		}
		ended <- unlessStopped(stop, err)
	}()
	select {
	case err := <-ended:
		return err
	case <-stop.again:
		return errors.New("ended at once; what was not archived yet is in its queue")
	}
}

// config returns the configuration for the flags.
func (c *consoleRunCmd) config() (deskConfig, string, error) {
	url := cmp.Or(c.URL, defaultURL)
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(url)); ok {
		return deskConfig{}, "", usagef("--url: %s", bad.Reason)
	}
	cfg := deskConfig{
		archive: cmp.Or(c.Archive, defaultArchive), listen: c.Listen, flag: "--listen",
		queues: queueSource{named: c.Queue, vhost: virtualHost(url)}, origin: guessed(), workers: guessedWorkers(),
	}
	if len(c.Queue) > 0 {
		if err := (failed.IngestConfig{Queues: c.Queue}).Validate(); err != nil {
			return cfg, "", usagef("--queue: %w", err)
		}
	} else if c.Management == "" {
		return cfg, "", usagef("which failed queues? name each with --queue NAME, or give --management URL, and all *.failed are found")
	}
	keep, err := atLeast(time.Hour, "--keep", c.Keep)
	if err != nil {
		return cfg, "", err
	}
	cfg.settings.Retention = keep
	if c.Tokens != "" {
		tokens, err := readTokens(c.Tokens)
		if err != nil {
			return cfg, "", usagef("--tokens: %w", err)
		}
		cfg.console.Tokens = tokens
	}
	if c.Notify != "" {
		notify, url, err := config.LoadNotify(c.Notify)
		if err != nil {
			return cfg, "", usagef("--notify: %w", err)
		}
		cfg.notify, cfg.url = notify, url
	}
	cfg.console.Secure, cfg.console.Prefix, cfg.console.TraceURL = c.Secure, c.Prefix, c.TraceURL
	if c.Management != "" {
		m, err := consoleManagement("--management", c.Management, cfg.queues.vhost)
		if err != nil {
			return cfg, "", err
		}
		cfg.console.Management = m
		if len(c.Queue) == 0 {
			cfg.queues.management = c.Management
		}
	}
	if err := cfg.check(); err != nil {
		return cfg, "", usageError{err}
	}
	return cfg, url, nil
}

// consoleManagement returns the management API at a URL that contains the user.
func consoleManagement(flag, rawURL, vhost string) (*console.Management, error) {
	u, err := managementURL(flag, rawURL)
	if err != nil {
		return nil, err
	}
	m := &console.Management{VHost: vhost, User: guest, Password: guest}
	if u.User != nil {
		m.User = u.User.Username()
		m.Password, _ = u.User.Password()
	}
	u.User = nil
	m.URL = u.String()
	return m, nil
}
