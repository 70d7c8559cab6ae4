package queuecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/content"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/topology"
)

// Peek is reprise peek.
type Peek struct {
	Queue      string        `arg:"" help:"Queue."`
	Limit      int           `default:"1" placeholder:"N" help:"Maximum number of messages, from 1 to ${maxPeek}. Default ${default}."`
	Management string        `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"URL of the management API, to find the type of the queue."`
	URL        string        `env:"REPRISE_URL" type:"address" placeholder:"URL" help:"URL of the broker. Default: amqp://guest:guest@127.0.0.1:5600."`
	Timeout    time.Duration `default:"10s" placeholder:"TIME" help:"Maximum time to connect. Default ${default}."`
	Yes        bool          `short:"y" help:"Do not ask for confirmation."`
	JSON       bool          `name:"json" help:"Print one JSON object per message."`
}

// MaxPeek is the maximum number of messages.
const MaxPeek = sift.MaxLook

// Help implements kong.HelpProvider.
func (Peek) Help() string {
	return `Shows the first messages of a queue and puts them back. AMQP cannot read a queue without taking the messages out, so
each look has a cost, which the command prints first:

  classic queue     the messages return to their places, marked as redelivered
  quorum queue,     the same; RabbitMQ 4.3 and the embedded broker do not count
  4.3 and later     the look as a failed delivery
  quorum queue,     the look counts as a failed delivery. After too many, the
  before 4.3        broker drops or dead-letters the message. On 3.10 without a
                    delivery limit, the messages also return to the end

Until the command ends, which takes no longer than the reading, consumers do not receive these messages, and may
overtake them. If the look counts, or the type of the queue is unknown, the command asks for confirmation. To look at
failed messages without any cost, use an archive: reprise failed.

Examples:
  reprise peek orders --limit 3
  reprise peek orders --url amqp://app:secret@rabbit --management http://app:secret@rabbit:15672
  reprise peek orders --json | jq -r .text

Exit codes: 0 done, also if the queue is empty, 1 failed, 2 invalid flags, 3 canceled.
`
}

// Run shows messages.
func (c *Peek) Run(ctx context.Context, streams terminal.IO) error {
	switch {
	case c.Queue == "":
		return exit.Usagef("the name of the queue must not be empty")
	case c.Limit < 1 || c.Limit > MaxPeek:
		return exit.Usagef("--limit must be from 1 to %d: got %d", MaxPeek, c.Limit)
	case c.Timeout <= 0:
		return exit.Usagef("--timeout must be positive: got %s", c.Timeout)
	}
	client, version, err := c.connect(ctx, streams)
	if err != nil {
		return err
	}
	defer dial.HangUp(client, time.Second)
	depth, err := client.Depth(ctx, c.Queue)
	if err != nil {
		return err
	}
	cost, err := c.cost(ctx, version)
	if err != nil {
		return err
	}
	if depth == 0 {
		if err := c.refuseStream(ctx, client); err != nil {
			return err
		}
		return streams.Result(c.JSON, nil, terminal.OneLine(c.Queue)+": no ready messages\n")
	}
	if cost.Counts && !c.Yes {
		if ok, err := terminal.Confirm(ctx, streams, strings.ToUpper(cost.Text[:1])+cost.Text[1:]+".\nLook at "+terminal.Plural(min(c.Limit, depth), "message")+"?"); !ok {
			return err
		}
	} else {
		fmt.Fprintln(streams.Stderr, "reprise: "+cost.Text)
	}
	var shown []api.Peeked
	err = client.Peek(ctx, c.Queue, c.Limit, func(m *reprise.Delivery) {
		shown = append(shown, api.PeekedOf(m, nil))
	})
	if err := c.print(streams, shown, depth); err != nil {
		return err
	}
	if errors.Is(err, reprise.ErrPeekLimit) {
		err = fmt.Errorf("stopped before message %d, which has failed %d times: each further look brings it closer to the delivery limit", len(shown)+1, reprise.MaxPeeks)
	}
	return err
}

// print prints the messages after they are back in the queue, because a pipe may block.
func (c *Peek) print(streams terminal.IO, shown []api.Peeked, depth int) error {
	for i, m := range shown {
		if c.JSON {
			if err := streams.Result(true, m, ""); err != nil {
				return err
			}
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%smessage %d of %d", strings.Repeat("\n", min(i, 1)), i+1, max(depth, len(shown)))
		if m.Redelivered {
			b.WriteString(", redelivered before")
		}
		if id := m.Properties.MessageID; id != nil {
			fmt.Fprintf(&b, "\n  message id: %s", terminal.OneLine(string(*id)))
		}
		fmt.Fprintf(&b, "\n  published to %s with the key %s\n", cmp.Or(terminal.OneLine(string(m.Properties.Exchange)), "the default exchange"), terminal.OneLine(string(m.Properties.RoutingKey)))
		b.WriteString(content.Properties(m.Properties) + content.Headers(topology.Table(m.Headers), streams.Width()))
		fmt.Fprintf(&b, "\nbody (%s)\n%s", content.Bytes(len(m.Body)), content.Body(topology.Table(m.Headers), m.Body))
		if err := streams.Result(false, nil, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// connect returns a client and the version of the broker.
func (c *Peek) connect(ctx context.Context, streams terminal.IO) (*reprise.Client, string, error) {
	ctx, cancel := dial.Within(ctx, c.Timeout)
	defer cancel()
	client, err := dial.Broker(ctx, c.URL, &reprise.Config{Name: "reprise peek", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, "", err
	}
	conn, err := inner.Of(client).Consuming.Get(ctx)
	if err != nil {
		return nil, "", errors.Join(err, client.Close(ctx))
	}
	return client, conn.Version(), nil
}

// refuseStream returns an error if the queue is a stream, whose depth RabbitMQ reports as 0.
func (c *Peek) refuseStream(ctx context.Context, client *reprise.Client) error {
	conn, err := inner.Of(client).Consuming.Get(ctx)
	if err != nil {
		return err
	}
	return conn.Do(ctx, func(ch *amqpconn.Channel) error {
		stream, err := ch.IsStream(ctx, c.Queue)
		if stream {
			err = fmt.Errorf("%s is a stream: read it with a consumer of streams, which takes no messages out", terminal.OneLine(c.Queue))
		}
		return err
	})
}

// cost finds the type of the queue, if it matters and the management API is known.
func (c *Peek) cost(ctx context.Context, version string) (sift.Cost, error) {
	if !consume.CountsNacks(version) || c.Management == "" {
		return sift.CostOf(version, nil), nil
	}
	m, err := dial.Management("--management", c.Management, dial.VirtualHost(c.URL))
	if err != nil {
		return sift.Cost{}, err
	}
	q, err := m.Declaration(ctx, c.Queue)
	if err != nil {
		return sift.Cost{}, err
	}
	cost := sift.CostOf(version, &q)
	if cost.Drops {
		err = fmt.Errorf("cannot look at %s: %s", terminal.OneLine(c.Queue), cost.Text)
	}
	return cost, err
}
