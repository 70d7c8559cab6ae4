package queuecmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// later returns the fields of a message for the outbox; without any, the message goes to the broker.
func (c *Publish) later() (p api.Publish, err error) {
	var order, unique string
	if err := cmp.Or(flags.Given("order-key", c.OrderKey, &order), flags.Given("unique", c.Unique, &unique)); err != nil {
		return p, err
	}
	p.Unique = api.Text(unique)
	if c.Partitions == 0 && c.Lanes == 0 || c.In != nil || c.At != nil || c.Unique != nil {
		p.OrderKey = api.Text(order)
	}
	if p.At, p.In, err = c.moment(); err != nil {
		return p, err
	}
	if c.In != nil && *c.In == 0 {
		return p, exit.Usagef("--in must be positive: got 0s (without --in, the message leaves now)")
	}
	if c.UniqueFor != nil {
		p.UniqueFor = api.Duration(*c.UniqueFor)
	}
	switch {
	case c.Unique == nil && c.UniqueFor != nil:
		return p, exit.Usagef("--unique-for requires --unique")
	case c.Unique != nil && p.UniqueFor < api.Duration(time.Millisecond):
		return p, exit.Usagef("--unique requires --unique-for, such as 1d")
	case !p.Later():
		return p, nil
	case c.URL != os.Getenv("REPRISE_URL"):
		return p, exit.Usagef("--url is not possible for a message that leaves later (use --server: the console's outbox selects the broker)")
	case c.Declare:
		return p, exit.Usagef("--declare is not possible for a message that leaves later (the queue must exist when it leaves)")
	case c.Expiration != "":
		return p, exit.Usagef("--expiration is not possible for a message that leaves later")
	case c.Count > 1 && c.Unique != nil:
		return p, exit.Usagef("--count %d and --unique exclude each other", c.Count)
	}
	return p, nil
}

// schedule asks the console to insert the message into its outbox, and prints its ID and its time.
func (c *Publish) schedule(ctx context.Context, m *reprise.Message, p api.Publish, streams terminal.IO) error {
	content := failed.ContentOf(&reprise.Delivery{Message: *m})
	content.Properties.Timestamp, content.Properties.Exchange, content.Properties.RoutingKey = time.Time{}, "", ""
	p.Target = api.Target{Exchange: api.Text(m.Exchange), RoutingKey: api.Text(m.RoutingKey)}
	p.Body, p.Headers, p.Properties = content.Body, api.Headers(content.Headers), api.PropertiesOf(content.Properties)
	return c.Ask(streams, func(client *api.Client) error {
		for n := range c.Count {
			trying, cancel := c.timeout(ctx)
			done, err := client.Publish(trying, p)
			cancel()
			if err != nil && n > 0 {
				return fmt.Errorf("message %d of %d: %w; the %d before it were scheduled", n+1, c.Count, err, n)
			}
			if err != nil {
				return err
			}
			if done.Duplicate {
				fmt.Fprintln(streams.Stderr, "another message has this key; its ID and its time are:")
			}
			if _, err := fmt.Fprintf(streams.Stdout, "%s %s\n", done.MessageID, done.Due.Local().Format(time.RFC3339)); err != nil {
				return fmt.Errorf("message scheduled, but cannot print its ID: %w", err)
			}
		}
		return nil
	})
}
