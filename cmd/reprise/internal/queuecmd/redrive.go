package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/destination"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/brief"
)

// Redrive is reprise redrive.
type Redrive struct {
	From        string          `placeholder:"QUEUE" help:"Failed queue."`
	To          string          `placeholder:"QUEUE" help:"Target: a queue, or EXCHANGE/KEY. Default: the queue of the failure."`
	Config      []string        `short:"c" sep:"none" placeholder:"FILE" help:"Configuration of the workers. Specifies the broker and, for presets, the targets of the messages."`
	Management  string          `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"URL of the management API. With it, messages go through exchanges that route only to the target queue."`
	URL         string          `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default: the broker of -c FILE, else amqp://guest:guest@127.0.0.1:5600."`
	Timeout     time.Duration   `default:"10s" placeholder:"TIME" help:"Maximum time to connect. Default ${default}."`
	Limit       int             `placeholder:"N" help:"Maximum number of messages. Default: the messages that are present at the start."`
	Rate        flags.PerSecond `placeholder:"N/s" help:"Maximum rate, such as 10/s, 100/m or 5000/h. Default: no limit."`
	ByQueueName bool            `name:"by-queue-name" help:"${byQueueName}"`
	Yes         bool            `short:"y" help:"Do not preview, and do not ask for confirmation."`
	Trust       bool            `name:"trust-headers" help:"Also send a message to a queue that only its headers name, which any publisher can write."`
	DryRun      bool            `name:"dry-run" help:"Only count the messages for each target."`
	JSON        bool            `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (Redrive) Help() string {
	return `Moves messages from a failed queue back to the queues of their failures, in order and without earlier attempts.
Each message is published and confirmed before it leaves the failed queue, so no message is lost; an interruption can
duplicate one message. Later arrivals stay in the failed queue. Stop an archive of the queue first.

A message goes through its exchange, with its routing key, if the management API or a preset in -c FILE shows that
they route only to the target queue, and by the name of the queue, if it was published so or if the worker in -c FILE
also retries so. Otherwise the command stops: a program that republishes a message under the name of the queue can
lose it. --by-queue-name sends such messages.

The queue of the failure comes from -c FILE, from headers, or from the name of the failed queue. A publisher can write
all headers, also x-death. They are proven if the name of the failed queue contains the queue, as in orders.failed, or
if the management API shows that the queue dead-letters to the failed queue. Otherwise, the command asks for
confirmation, or requires --trust-headers.

In the output of --json, an entry of queues has queue and messages, with exchange and routing_key (or keys) if messages are
sent through an exchange, and can have warning, claimed, unknown or lost.

Examples:
  reprise redrive --from orders.failed --dry-run
  reprise redrive --from orders.failed --limit 1
  reprise redrive --from orders.failed --rate 10/s
  reprise redrive --from orders.failed --to orders-by-hand
  reprise redrive --from orders.failed --to shop/order.new
  reprise redrive --from cover-art-archive.failed -c reprise.yaml
  reprise redrive --from orders.failed --management http://guest:guest@127.0.0.1:15672

Exit codes: 0 all messages sent, 1 no connection, a message that cannot be sent, an unknown route, or an untrusted
header, 2 invalid flags, 3 Ctrl-C, a refused confirmation, or another consumer that took messages.
`
}

// redriveResult is the output of --json.
type redriveResult struct {
	From   string          `json:"from"`
	To     string          `json:"to,omitempty"`
	Found  int             `json:"found"`
	Sent   int             `json:"sent"`
	DryRun bool            `json:"dry_run,omitempty"`
	Looked int             `json:"looked,omitempty"` // number of inspected messages
	Queues []redriveTarget `json:"queues,omitempty"` // destinations of the inspected messages
	Error  string          `json:"error,omitempty"`
}

// Run redrives the messages.
func (c *Redrive) Run(ctx context.Context, streams terminal.IO) error {
	switch {
	case c.From == "":
		return exit.Usagef("--from QUEUE is required, such as --from orders.failed")
	case c.Limit < 0:
		return exit.Usagef("--limit must be at least 1: got %d", c.Limit)
	case c.Timeout <= 0:
		return exit.Usagef("--timeout must be positive: got %s", c.Timeout)
	}
	to, err := destination.Parse(c.To)
	if err != nil {
		return err
	}
	shown := false
	redrive := replay.RedriveConfig{From: c.From, To: to, Limit: c.Limit, Rate: float64(c.Rate), ByQueueName: c.ByQueueName}
	redrive.Believe = func(string) bool { return c.Trust }
	redrive.Logger = slog.New(warningLogger{c.logger(streams).Handler(), streams.Stderr, &shown})
	workers := design.Published()
	redrive.Origin = design.PublishedOrigin()
	url := c.URL
	if len(c.Config) > 0 {
		cfg, err := config.Load(c.Config...)
		if err != nil {
			return exit.Usage(err)
		}
		workers = cfg.WorkerConfigs()
		redrive.Origin, redrive.Marks = design.Origin(workers), design.Marks(workers)
		url = cmp.Or(url, dial.Configured(cfg))
	}
	if redrive.Routing, err = c.routing(workers, cmp.Or(url, dial.DefaultURL)); err != nil {
		return err
	}
	client, err := c.connect(ctx, url, streams)
	if err != nil {
		return err
	}
	defer dial.HangUp(client, time.Second) // all messages are confirmed

	result := redriveResult{From: c.From, To: c.To, DryRun: c.DryRun}
	if c.looks(to) {
		var destinations []replay.Destination
		result.Found, destinations, err = replay.LookBeforeRedrive(ctx, client, redrive)
		result.Queues = redriveTargets(destinations)
		for _, d := range destinations {
			result.Looked += int(d.Messages)
		}
		if err == nil && !c.DryRun {
			redrive.Believe, shown, err = c.believe(ctx, streams, result)
		}
	}
	if err == nil && to != nil && !c.DryRun && !c.Yes {
		_, err = terminal.Confirm(ctx, streams, fmt.Sprintf("Send the messages of %s to %s?", terminal.OneLine(c.From), destination.Text(to)))
	}
	if !c.DryRun && err == nil {
		bar := terminal.NewProgress(streams, "sending")
		redrive.Progress = func(found, sent int) { bar.Show(int64(sent), int64(found)) }
		result.Found, result.Sent, err = replay.Redrive(ctx, client, redrive)
		bar.End()
	}
	return c.report(ctx, streams, result, to, err)
}

// connect returns a client, or an error after the timeout.
func (c *Redrive) connect(ctx context.Context, url string, streams terminal.IO) (*reprise.Client, error) {
	ctx, cancel := dial.Within(ctx, c.Timeout)
	defer cancel()
	return dial.Broker(ctx, url, &reprise.Config{Name: "reprise redrive", Logger: c.logger(streams)})
}

// routing returns the known routes to the work queues.
func (c *Redrive) routing(workers []reprise.WorkerConfig, url string) (replay.Routing, error) {
	r := replay.Routing{Workers: workers}
	if c.Management == "" {
		return r, nil
	}
	m, err := dial.Management("--management", c.Management, dial.VirtualHost(url))
	if err != nil {
		return r, err
	}
	r.Bindings, r.Queue = m.Topology, m.Declaration
	return r, nil
}

// logger returns a logger that reports every 30 s that the command is waiting for the broker.
func (*Redrive) logger(streams terminal.IO) *slog.Logger {
	return dial.Waiting(streams.Stderr, "waiting for the broker: %s", 30*time.Second)
}

// report prints the result, even if the redrive is incomplete.
func (c *Redrive) report(ctx context.Context, streams terminal.IO, r redriveResult, to *failed.Target, err error) error {
	if missing, ok := errors.AsType[*reprise.QueueError](err); ok && missing.Code == 404 {
		return fmt.Errorf("queue %s not found", brief.Quoted(c.From))
	}
	if err != nil {
		r.Error = exit.Text(err)
		if ctx.Err() != nil {
			r.Error = "interrupted"
		}
	}
	if err := streams.Result(c.JSON, r, r.text(to)+"\n"); err != nil {
		return err
	}
	switch {
	case exit.Code(err) == exit.CodeEnded:
		return err
	case err == nil && !r.DryRun && r.Sent < r.Found:
		return exit.Stopped(errors.New("another consumer received the remaining messages"))
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return exit.Stopped(errors.New("interrupted; messages not sent remain in the queue"))
	}
	hint := ""
	if claimed, ok := errors.AsType[*replay.ClaimError](err); ok {
		hint = fmt.Sprintf("; --trust-headers believes it, --to names another queue than %s, -c FILE the configuration of the workers that know it", claimed.Queue)
	}
	if _, ok := errors.AsType[*replay.RouteError](err); ok {
		hint = "; " + destination.OtherRoutes
	}
	if errors.Is(err, reprise.ErrPeekLimit) {
		return fmt.Errorf("cannot preview %s: %s (do not repeat the preview, because RabbitMQ may drop the message; with --to, a redrive needs no preview)", c.From, exit.Text(err))
	}
	if _, ok := errors.AsType[*reprise.UnroutableError](err); ok && to == nil {
		hint = "; --to names another queue, -c FILE the configuration of the workers that know it"
	}
	return fmt.Errorf("%s (this message and the messages behind it remain in the queue%s)", exit.Text(err), hint)
}

func (r redriveResult) text(to *failed.Target) string {
	switch {
	case r.DryRun && r.Found > 0:
		return fmt.Sprintf("%s: %s would be sent to %s", r.From, terminal.Plural(r.Found, "message"), destination.Text(to)) + r.queues(to)
	case r.Found == 0:
		return r.From + ": nothing to send"
	case r.Sent == r.Found:
		return fmt.Sprintf("%s: %s sent to %s", r.From, terminal.Plural(r.Sent, "message"), destination.Text(to))
	}
	return fmt.Sprintf("%s: %d of %s sent to %s", r.From, r.Sent, terminal.Plural(r.Found, "message"), destination.Text(to))
}
