package plancmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/doctor"
)

// Doctor is reprise doctor.
type Doctor struct {
	Management  string   `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" default:"http://guest:guest@localhost:15672" help:"URL of the management API. Default ${default}."`
	Definitions string   `placeholder:"FILE" help:"Read a file of definitions instead (- for stdin)."`
	Config      []string `short:"c" sep:"none" placeholder:"FILE" help:"Compare the handlers of a configuration file with the broker."`
	VHost       string   `name:"vhost" placeholder:"NAME" help:"Virtual host. Default: all."`
	List        bool     `help:"Print the rules."`
	Ignore      []string `placeholder:"RULE" help:"Do not apply a rule, such as unused-policy."`
	JSON        bool     `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (Doctor) Help() string {
	return `Reads the queues, exchanges, bindings, policies, users and connections of a RabbitMQ, and reports what loses, blocks or
repeats messages, and what a later version of RabbitMQ refuses: with the evidence, the reason and what to do. It changes
nothing. A user without the tag monitoring or administrator sees fewer objects, and a file of definitions has no messages,
consumers and connections: the command names the rules that it does not check. With -c, it also compares the timeouts of
handlers with those of the broker.

Examples:
  reprise doctor --management http://admin:secret@rabbit:15672
  rabbitmqctl export_definitions - | reprise doctor --definitions -
  reprise doctor --vhost payments --ignore unused-policy --json | jq '.findings[].object'

Exit codes: 0 no findings, 1 findings, or the broker cannot be read, 2 invalid flags.
`
}

// Run examines a broker.
func (c *Doctor) Run(ctx context.Context, streams terminal.IO) error {
	for _, name := range c.Ignore {
		if !slices.ContainsFunc(doctor.Rules, func(r doctor.Rule) bool { return r.Name == name }) {
			return exit.Usagef("--ignore %s: rule not found (see reprise doctor --list)", name)
		}
	}
	if c.List {
		return streams.Result(c.JSON, doctor.Rules, rulesText(streams.Width()))
	}
	b, err := c.broker(ctx, streams)
	if err == nil && len(c.Config) > 0 {
		err = addHandlers(b, c.Config)
	}
	if err != nil {
		return err
	}
	r := doctor.Check(b, c.Ignore...)
	if err := streams.Result(c.JSON, r, doctorText(r, streams.Width())); err != nil || len(r.Findings) == 0 {
		return err
	}
	return exit.ErrPrinted
}

func (c *Doctor) broker(ctx context.Context, streams terminal.IO) (*doctor.Broker, error) {
	if c.Definitions == "" {
		m, err := dial.Management("--management", c.Management, c.VHost)
		if err != nil {
			return nil, err
		}
		return doctor.Read(ctx, *m, c.VHost)
	}
	text, err := read(c.Definitions, streams)
	if err != nil {
		return nil, err
	}
	return doctor.Parse(text, c.VHost)
}

// addHandlers adds the handlers of a configuration file.
func addHandlers(b *doctor.Broker, files []string) error {
	cfg, err := config.Load(files...)
	if err != nil {
		return exit.Usage(err)
	}
	var all []doctor.Handler
	for _, w := range cfg.Workers {
		h := doctor.Handler{VHost: dial.VirtualHost(cfg.Broker), Queue: w.Queue}
		if w.HTTP != nil {
			h.Timeout = cmp.Or(w.HTTP.Timeout, handler.DefaultTimeout)
		} else if w.Exec != nil {
			h.Timeout = w.Exec.Timeout
		} else if w.Process != nil {
			h.Timeout = cmp.Or(w.Process.Timeout, handler.DefaultTimeout)
		}
		all = append(all, h)
	}
	b.SetHandlers(all)
	return nil
}

// doctorText returns the findings by rule, and a summary.
func doctorText(r doctor.Report, width int) string {
	var b strings.Builder
	for _, g := range r.ByRule(maxShown) {
		fmt.Fprintf(&b, "%s: %s\n", g.Severity, g.Rule)
		indent(&b, "  ", g.Why, width)
		for _, f := range g.Shown {
			in := ""
			if f.VHost != "" && f.VHost != "/" {
				in = " in " + f.VHost
			}
			indent(&b, "  - ", fmt.Sprintf("%s%s: %s", f.Object, in, f.Evidence), width)
			fmt.Fprintf(&b, "    fix: %s\n", terminal.OneLine(f.Fix)) // a command that users copy
		}
		if g.More > 0 {
			fmt.Fprintf(&b, "  … and %d more (--json shows all)\n", g.More)
		}
		b.WriteByte('\n')
	}
	of := "the broker"
	if r.Version != "" {
		of = "RabbitMQ " + terminal.OneLine(r.Version)
	}
	fmt.Fprintf(&b, "%s in %s of %s, by %s\n", terminal.Plural(len(r.Findings), "finding"), terminal.Plural(r.Queues, "queue"), of, terminal.Plural(r.Rules, "rule"))
	lists := map[string][]string{}
	for _, s := range r.Skipped {
		lists[s.Missing] = append(lists[s.Missing], s.Rule)
	}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		indent(&b, "", fmt.Sprintf("not checked without %s: %s", list, strings.Join(lists[list], ", ")), width)
	}
	return b.String()
}

// rulesText lists all rules with their reasons.
func rulesText(width int) string {
	var b strings.Builder
	for _, r := range doctor.Rules {
		fmt.Fprintf(&b, "%s: %s\n", r.Severity, r.Name)
		indent(&b, "  ", r.Why, width)
	}
	return b.String()
}

// maxShown is the maximum number of findings of one rule in text.
const maxShown = 10

// indent writes text with a prefix. Further lines begin with spaces.
func indent(b *strings.Builder, prefix, text string, width int) {
	b.WriteString(prefix + terminal.Fill(text, width, len(prefix)) + "\n")
}

// read reads a file, or stdin if its name is "-".
func read(name string, streams terminal.IO) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(streams.Stdin)
	}
	return os.ReadFile(name)
}
