// Package queuecmd implements the commands that act on queues and their workers, and on messages that leave later: publish,
// schedule, cron, redrive, purge, waiting, keys, workers, pause and resume.
package queuecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/remote"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// Publish is reprise publish.
type Publish struct {
	URL     string        `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default amqp://guest:guest@127.0.0.1:5600."`
	Timeout time.Duration `default:"10s" placeholder:"TIME" help:"Maximum time to connect, and maximum time to publish each message. Default ${default}."`

	To       string  `placeholder:"QUEUE" help:"Queue to publish to."`
	Declare  bool    `help:"Declare missing queues: the queue of --to or its --lanes, and its failed queue, durable, as a worker declares them."`
	Exchange *string `placeholder:"NAME" help:"Exchange to publish to."`
	Key      string  `placeholder:"KEY" help:"Routing key for --exchange."`

	Partitions int `placeholder:"N" help:"Publish to the partition of --order-key, for workers of --to with order_by and N partitions."`
	Lanes      int `placeholder:"N" help:"Publish to the lane of --order-key, for workers of --to with N lanes."`

	Header        []string `short:"H" sep:"none" placeholder:"K=V" help:"Header: name=text, or name:=JSON for other types. Repeatable."`
	ContentType   string   `name:"content-type" placeholder:"TYPE" help:"Content type, such as application/json."`
	Type          string   `placeholder:"NAME" help:"Type of the message."`
	MessageID     string   `name:"message-id" placeholder:"ID" help:"Message ID. Default: random."`
	CorrelationID string   `name:"correlation-id" placeholder:"ID" help:"Correlation ID."`
	Priority      *uint8   `placeholder:"N" help:"Priority, 0 to 255."`
	Expiration    string   `placeholder:"TIME" help:"Maximum wait for the first attempt, such as 30s or 1d. Default: none."`

	momentFlags    `group:"Later:"`
	OrderKey       *string        `group:"Later:" name:"order-key" placeholder:"KEY" help:"Messages with the same key leave one after the other; with --partitions, they are processed in order; with --lanes, they share a lane."`
	Unique         *string        `group:"Later:" placeholder:"KEY" help:"Key that at most one message has, until --unique-for has passed since it was due."`
	UniqueFor      *time.Duration `group:"Later:" name:"unique-for" placeholder:"TIME" help:"Required with --unique."`
	remote.Console `group:"Later:"`

	Count int     `default:"1" placeholder:"N" help:"Number of copies, each with a different message ID. Default ${default}."`
	File  string  `short:"f" placeholder:"FILE" help:"File with the body, - for stdin."`
	Body  *string `arg:"" optional:"" help:"Body, - for stdin. Default: stdin."`
}

// Help implements kong.HelpProvider.
func (Publish) Help() string {
	return `The message is persistent. The command waits for the publisher confirm and prints the message ID. It fails if
the message is unroutable.

With --in, --at, --order-key or --unique, it asks the console (--server) to insert the message into the outbox, and
prints the message ID and the time at which the message leaves. See reprise schedule --help.

Examples:
  reprise publish --to orders --in 10m '{"id": 7}'
  reprise publish --to invoices --unique invoice-9 --unique-for 1d -f 9.json
  reprise publish --to orders --declare '{"id": 7}'
  reprise publish --exchange shop --key order.new --type order -f order.json
  echo hello | reprise publish --to greetings -H lang=en -H tries:=3
`
}

// Run publishes the messages.
func (c *Publish) Run(ctx context.Context, streams terminal.IO) error {
	m, err := c.message()
	if err != nil {
		return err
	}
	later, err := c.later()
	if err != nil {
		return err
	}
	if m.Body, err = c.body(ctx, streams); err != nil {
		return err
	}
	if later.Later() {
		return c.schedule(ctx, m, later, streams)
	}
	connecting, cancel := c.timeout(ctx)
	defer cancel()
	client, err := dial.Broker(connecting, c.URL, &reprise.Config{
		ConfirmTimeout: c.Timeout, Name: "reprise publish",
		Logger: dial.Waiting(streams.Stderr, "not connected yet (%s), trying for "+c.Timeout.String(), c.Timeout),
	})
	if err != nil {
		return err
	}
	defer dial.HangUp(client, time.Second) // all messages are confirmed
	if c.Declare {
		if err := client.Declare(connecting, c.route().Topology(c.To)); err != nil {
			return err
		}
	}
	return c.publish(ctx, client.Publish, m, streams)
}

// timeout returns a context for one step. Each step has the full timeout.
func (c *Publish) timeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return dial.Within(ctx, c.Timeout)
}

// publish publishes the requested number of messages and prints their IDs.
func (c *Publish) publish(ctx context.Context, publish func(context.Context, *reprise.Message) error, m *reprise.Message, streams terminal.IO) error {
	for n := range c.Count {
		one := *m
		trying, cancel := c.timeout(ctx)
		err := publish(trying, &one)
		if err != nil {
			err = c.explain(trying, err)
		}
		cancel()
		switch {
		case err != nil && n > 0:
			return fmt.Errorf("message %d of %d: %w; the %d before it were published", n+1, c.Count, err, n)
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintln(streams.Stdout, one.MessageID); err != nil {
			return fmt.Errorf("message published, but cannot print its ID: %w", err)
		}
	}
	return nil
}

// message returns the message without its body.
func (c *Publish) message() (*reprise.Message, error) {
	m := &reprise.Message{
		RoutingKey:    c.Key,
		ContentType:   c.ContentType,
		Type:          c.Type,
		MessageID:     c.MessageID,
		CorrelationID: c.CorrelationID,
		Timestamp:     time.Now(),
	}
	if c.Priority != nil {
		m.Priority, m.Zero = *c.Priority, reprise.PropertyPriority
	}
	switch {
	case c.To != "" && (c.Exchange != nil || c.Key != ""):
		return nil, exit.Usagef("--to and --exchange exclude each other")
	case c.To != "":
		m.RoutingKey = c.To // the default exchange routes by queue name
	case c.Exchange != nil:
		m.Exchange = *c.Exchange
	default:
		return nil, exit.Usagef("a destination is required (use --to QUEUE, or --exchange NAME and --key KEY)")
	}
	if err := c.partition(m); err != nil {
		return nil, err
	}
	switch {
	case c.Declare && c.To == "":
		return nil, exit.Usagef("--declare requires --to QUEUE")
	case c.Declare && (topology.Strategy{Route: c.route()}).ValidateQueue(c.To) != nil:
		return nil, exit.Usagef("--to: %w", topology.Strategy{Route: c.route()}.ValidateQueue(c.To))
	case c.Count < 1:
		return nil, exit.Usagef("--count must be at least 1: got %d", c.Count)
	case c.Count > 1 && c.MessageID != "":
		return nil, exit.Usagef("--count %d and --message-id exclude each other (the messages would be duplicates)", c.Count)
	case c.Timeout <= 0:
		return nil, exit.Usagef("--timeout must be positive: got %s", c.Timeout)
	}
	var err error
	if c.Expiration != "" {
		if m.Expiration, err = config.ParseDuration(c.Expiration); err != nil {
			return nil, exit.Usagef("--expiration: %w", err)
		}
		if m.Expiration <= 0 {
			return nil, exit.Usagef("--expiration must be positive: got %s", c.Expiration)
		}
	}
	m.Headers, err = flags.Headers(c.Header)
	if err == nil && c.Partitions > 0 {
		m.Headers = withKey(m.Headers, *c.OrderKey)
	}
	return m, err
}

// partition sets the destination of a message for workers with order_by.
func (c *Publish) partition(m *reprise.Message) error {
	switch {
	case c.Lanes != 0:
		return c.lane(m)
	case c.Partitions == 0:
	case c.Partitions < 0 || c.To == "" || c.OrderKey == nil:
		return exit.Usagef("--partitions must be positive, and requires --to QUEUE and --order-key KEY")
	case c.Declare || c.Priority != nil:
		return exit.Usagef("--partitions excludes --declare, because the first worker determines their number and the header of the key, and --priority, which changes the order")
	default:
		m.RoutingKey = reprise.PartitionQueue(c.To, *c.OrderKey, c.Partitions)
	}
	return nil
}

// lane sets the destination of a message for workers with lanes.
func (c *Publish) lane(m *reprise.Message) error {
	switch {
	case c.Lanes < 1 || c.Lanes > topology.MaxLanes || c.To == "" || c.OrderKey == nil:
		return exit.Usagef("--lanes must be from 1 to %d, and requires --to QUEUE and --order-key KEY", topology.MaxLanes)
	case c.Partitions != 0:
		return exit.Usagef("--lanes and --partitions exclude each other")
	}
	m.RoutingKey = reprise.LaneQueue(c.To, *c.OrderKey, c.Lanes)
	return nil
}

// route returns the route of the workers of --to, which declares their queues.
func (c *Publish) route() topology.Route {
	if c.Lanes > 0 {
		return topology.Lanes{Count: c.Lanes}
	}
	return topology.Buckets{}
}

// withKey returns the headers with the key of a message.
func withKey(headers map[string]any, key string) map[string]any {
	if headers == nil {
		headers = map[string]any{}
	}
	headers[reprise.HeaderKey] = key
	return headers
}

// body reads the body from the source that the flags specify.
func (c *Publish) body(ctx context.Context, streams terminal.IO) ([]byte, error) {
	switch {
	case c.Body != nil && c.File != "":
		return nil, exit.Usagef("the body must be an argument or -f, not both")
	case c.Body != nil && *c.Body != "-":
		return []byte(*c.Body), nil
	case c.File != "" && c.File != "-":
		b, err := os.ReadFile(c.File)
		if err != nil {
			return nil, exit.Usagef("-f: %w", err)
		}
		return b, nil
	}
	if c.File == "" && terminal.Is(streams.Stdin) {
		fmt.Fprintln(streams.Stderr, "reprise: reading the body from the terminal, Ctrl-D ends it")
	}
	type input struct {
		body []byte
		err  error
	}
	read := make(chan input, 1)
	go func() { // the read cannot be interrupted; the goroutine runs until the process exits
		b, err := io.ReadAll(streams.Stdin)
		read <- input{b, err}
	}()
	select {
	case in := <-read:
		if in.err != nil {
			return nil, fmt.Errorf("cannot read the body from stdin: %w", in.err)
		}
		return in.body, nil
	case <-ctx.Done():
		return nil, errors.New("interrupted while reading the body from stdin; no message published")
	}
}

// explain adds to the error what happened to the message.
func (c *Publish) explain(ctx context.Context, err error) error {
	if unroutable, ok := errors.AsType[*reprise.UnroutableError](err); ok {
		switch {
		case c.Lanes > 0:
			return fmt.Errorf("queue %s not found; message not stored (do its workers have %d lanes? use --declare to create them)", brief.Quoted(unroutable.RoutingKey), c.Lanes)
		case c.Partitions > 0:
			return fmt.Errorf("queue %s not found; message not stored (its workers with order_by declare it: are there %d partitions?)", brief.Quoted(unroutable.RoutingKey), c.Partitions)
		case c.To != "":
			return fmt.Errorf("queue %s not found; message not stored (use --declare to create it)", brief.Quoted(c.To))
		case unroutable.Code == 404:
			return fmt.Errorf("exchange %s not found; message not stored", brief.Quoted(*c.Exchange))
		case *c.Exchange == "":
			return fmt.Errorf("queue %s not found; message not stored (the default exchange routes to the queue with the name of the key)", brief.Quoted(c.Key))
		}
		return fmt.Errorf("exchange %s has no queue bound for key %s; message not stored", brief.Quoted(*c.Exchange), brief.Quoted(c.Key))
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, reprise.ErrUnconfirmed) {
		return cause
	}
	return err
}
