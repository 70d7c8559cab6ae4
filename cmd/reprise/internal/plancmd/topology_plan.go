package plancmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
)

// compareFlags are the flags of plan and apply.
type compareFlags struct {
	Config     []string `short:"c" sep:"none" default:"reprise.yaml" placeholder:"FILE" help:"Configuration file, or directory of such files. Repeatable. Default ${default}."`
	Management string   `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"URL of the management API. Default: management: of the console in the file."`
	VHost      string   `name:"vhost" placeholder:"NAME" help:"Virtual host. Default: the virtual host of broker: in the file."`
	JSON       bool     `name:"json" help:"Print JSON."`
}

// UsageIsFailure makes an invalid flag exit with 1, because 2 means a difference.
func (compareFlags) UsageIsFailure() {}

// load reads the file, and sets the default of the virtual host.
func (c *compareFlags) load() (*config.Config, error) {
	cfg, err := config.Load(c.Config...)
	if err != nil {
		return nil, err
	}
	c.VHost = cmp.Or(c.VHost, dial.VirtualHost(cfg.Broker))
	if cfg.Console != nil {
		c.Management = cmp.Or(c.Management, cfg.Console.Management)
	}
	return cfg, nil
}

// compare compares the file with the broker.
func (c *compareFlags) compare(ctx context.Context, cfg *config.Config) (*drift.Plan, error) {
	if c.Management == "" {
		return nil, exit.Usagef("--management URL is required, because AMQP cannot list objects (or, for plan, --definitions FILE)")
	}
	m, err := dial.Management("--management", c.Management, c.VHost)
	if err != nil {
		return nil, err
	}
	b, err := doctor.Read(ctx, *m, c.VHost)
	if err != nil {
		return nil, err
	}
	return drift.Compare(cfg.WorkerConfigs(), b, c.VHost), nil
}

// print prints a plan, and returns an error if there are differences.
func (c *compareFlags) print(streams terminal.IO, p *drift.Plan) error {
	if err := streams.Result(c.JSON, p, planText(p, streams.Width())); err != nil || p.Differences == 0 {
		return err
	}
	return exit.ErrDiffer
}

type planCmd struct {
	compareFlags
	Definitions string `placeholder:"FILE" help:"Compare with a file of definitions instead of a broker (- for stdin)."`
}

// planExits describes the results of plan and apply.
const planExits = `
Each object has one line:
  + create            missing; reprise topology apply creates it
  ~ change            it exists with other properties, which RabbitMQ does not change (406), or a policy has another effect
  ! conflict          it cannot be declared, or it needs an object that the file does not declare
  - not in the file:  it exists and belongs to an object of the file: a binding, or a queue at the other end of dead letters.
                      This is not a difference.
  = exists
`

// Help implements kong.HelpProvider.
func (planCmd) Help() string {
	return `Compares the exchanges, queues and bindings that the workers of a file declare with those of a broker, and shows what
reprise topology apply would create and what it cannot change. Values are those that are in effect, also through policies.
Wait queues that a worker declares at a retry are compared if they exist. The command changes nothing. Its user needs the
tag management, and permissions in the virtual host.
` + planExits + `
--json prints version, vhost, differences (a number) and objects, each with status (one of the words above), kind (exchange,
queue, binding or broker) and name; a binding also with exchange, queue or to_exchange, routing_key and arguments. If they
exist, an object has differences (property, file, broker, and policy), notes and fix.

Examples:
  reprise topology plan -c reprise.yaml --management http://monitor:secret@rabbit:15672
  rabbitmqctl export_definitions - | reprise topology plan --definitions - --vhost payments
  reprise topology plan --json | jq -r '.objects[] | select(.status == "create").name'

Exit codes: 0 no difference, 2 differences, 1 error, also an invalid flag or configuration.
`
}

// Run compares.
func (c *planCmd) Run(ctx context.Context, streams terminal.IO) error {
	p, err := c.plan(ctx, streams)
	if err == nil {
		err = c.print(streams, p)
	}
	return exit.Failed(err)
}

func (c *planCmd) plan(ctx context.Context, streams terminal.IO) (*drift.Plan, error) {
	cfg, err := c.load()
	if err != nil {
		return nil, err
	}
	if c.Definitions == "" {
		return c.compare(ctx, cfg)
	}
	text, err := read(c.Definitions, streams)
	if err != nil {
		return nil, err
	}
	b, err := doctor.Parse(text, c.VHost)
	if err != nil {
		return nil, err
	}
	return drift.Compare(cfg.WorkerConfigs(), b, c.VHost), nil
}

type applyCmd struct {
	compareFlags
	URL string `type:"address" placeholder:"URL" help:"URL of the broker that creates the objects. Default: broker: in the file."`
	Yes bool   `short:"y" help:"Do not ask for confirmation."`
}

// Help implements kong.HelpProvider.
func (applyCmd) Help() string {
	return `Creates the objects that reprise topology plan shows as missing, after a question, and then compares again. It never
changes or deletes an object, and creates nothing while there is a conflict. The management API only reads. AMQP creates, as
the user of broker: in the file, who needs no other permissions than the workers: configure for exchanges and queues; for a
binding, write for its destination and read for its source.
` + planExits + `
Examples:
  reprise topology apply -c reprise.yaml --management http://monitor:secret@rabbit:15672
  reprise topology apply --yes --url amqp://admin:secret@rabbit/payments

Exit codes: 0 no difference is left, 2 differences or conflicts are left, 1 error, also an invalid flag or configuration, 3 a
refused confirmation.
`
}

// Run creates missing objects.
func (c *applyCmd) Run(ctx context.Context, streams terminal.IO) error {
	return exit.Failed(c.apply(ctx, streams))
}

func (c *applyCmd) apply(ctx context.Context, streams terminal.IO) error {
	if c.URL != "" {
		c.VHost = cmp.Or(c.VHost, dial.VirtualHost(c.URL))
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	url := cmp.Or(c.URL, dial.Configured(cfg))
	if to := dial.VirtualHost(url); to != c.VHost {
		return exit.Usagef("--vhost must be the virtual host of the broker's URL: got %s and %s", c.VHost, to)
	}
	p, err := c.compare(ctx, cfg)
	if err != nil {
		return err
	}
	if n := p.Count(drift.Conflict); n > 0 { // some of the objects without the others could lose messages
		fmt.Fprintf(streams.Stderr, "reprise: created nothing, because of %s\n", terminal.Plural(n, "conflict"))
		return c.print(streams, p)
	}
	if p.Count(drift.Create) == 0 {
		return c.print(streams, p)
	}
	if !c.Yes {
		fmt.Fprint(streams.Stderr, planText(p, streams.Width()))
		if ok, err := terminal.Confirm(ctx, streams, fmt.Sprintf("Create %s in virtual host %s?", terminal.Plural(p.Count(drift.Create), "object"), terminal.OneLine(c.VHost))); !ok {
			return err
		}
	}
	client, err := dial.Broker(ctx, url, &reprise.Config{Name: "reprise topology apply", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer dial.HangUp(client, time.Second)
	if err := client.Declare(ctx, p.Missing()); err != nil {
		return err
	}
	after, err := c.compare(ctx, cfg)
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(streams.Stdout, "created %s\n\n", terminal.Plural(p.Count(drift.Create)-after.Count(drift.Create), "object"))
	}
	return c.print(streams, after)
}

// signs begin the lines of objects.
var signs = map[drift.Status]string{
	drift.Create: "+ create", drift.Change: "~ change", drift.Conflict: "! conflict", drift.Extra: "- not in the file:", drift.Exists: "= exists",
}

// maxObjects is the maximum number of objects of one status in text, except differences.
const maxObjects = 20

// planText returns a line for each object, and a summary.
func planText(p *drift.Plan, width int) string {
	var b strings.Builder
	shown := map[drift.Status]int{}
	var previous drift.Status
	more := func(next drift.Status) {
		if hidden := shown[previous] - maxObjects; previous != next && hidden > 0 && !different(previous) {
			fmt.Fprintf(&b, "%s … and %d more (--json shows all)\n", signs[previous], hidden)
		}
		previous = next
	}
	for _, o := range p.Objects {
		more(o.Status)
		if shown[o.Status]++; shown[o.Status] > maxObjects && !different(o.Status) {
			continue
		}
		indent(&b, signs[o.Status]+" ", o.String(), 0)
		for _, d := range o.Differences {
			indent(&b, "    ", d.String(), width)
		}
		for _, note := range o.Notes {
			indent(&b, "    ", note, width)
		}
		if o.Fix != "" {
			fmt.Fprintf(&b, "    fix: %s\n", terminal.OneLine(o.Fix)) // may be a command that users copy
		}
	}
	more("")
	if len(p.Objects) > 0 {
		b.WriteByte('\n')
	}
	of := "the broker"
	if p.Version != "" {
		of = "RabbitMQ " + terminal.OneLine(p.Version)
	}
	fmt.Fprintf(&b, "%s in virtual host %s of %s", terminal.Plural(p.Differences, "difference"), terminal.OneLine(p.VHost), of)
	switch n := p.Count(drift.Create); {
	case n > 0 && p.Count(drift.Conflict) > 0:
		b.WriteString("; reprise topology apply creates nothing while there are conflicts")
	case n > 0:
		fmt.Fprintf(&b, "; reprise topology apply creates %s", terminal.Plural(n, "object"))
	}
	b.WriteByte('\n')
	return b.String()
}

// different reports whether objects with a status are differences.
func different(s drift.Status) bool { return s != drift.Extra && s != drift.Exists }
