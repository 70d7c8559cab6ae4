package plancmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
)

type importCmd struct {
	Management  string   `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" default:"http://guest:guest@localhost:15672" help:"URL of the management API. Default ${default}."`
	Definitions string   `placeholder:"FILE" help:"Read a file of definitions instead (- for stdin)."`
	VHost       string   `name:"vhost" default:"/" placeholder:"NAME" help:"Virtual host. Default ${default}."`
	Queue       []string `placeholder:"NAME" help:"Work queue, also one without retries. Default: all with a retry design."`
	Output      string   `short:"o" placeholder:"FILE" help:"New file. Default: stdout."`
}

// Help implements kong.HelpProvider.
func (importCmd) Help() string {
	return `Writes a configuration for the work queues of a broker, so that reprise topology plan compares both from then on. It
recognizes the designs of the presets, the queues of Reprise, and hand-made designs: a work queue with a failed queue, or with
wait queues whose messages return after a TTL. It changes nothing on the broker.

A worker of a hand-made design has the delays and the failed queue of the broker, and its own wait queues. The file begins with
comments: what to fill in, and what it does not contain, with the reasons. The management API knows no handlers: reprise up
refuses the file until you replace each exec: [YOUR-HANDLER].

Examples:
  reprise topology import --management http://monitor:secret@rabbit:15672 --vhost payments -o reprise.yaml
  reprise topology plan --management http://monitor:secret@rabbit:15672
  rabbitmqctl export_definitions - | reprise topology import --definitions - >reprise.yaml

Exit codes: 0 written, 1 nothing to write, or the broker cannot be read, 2 invalid flags.
`
}

// Run writes the configuration.
func (c *importCmd) Run(ctx context.Context, streams terminal.IO) error {
	b, broker, err := c.read(ctx, streams)
	if err != nil {
		return err
	}
	m := newImporter(b, c.VHost, broker)
	for _, queue := range c.Queue {
		if b.Queue(c.VHost, queue) == nil {
			return fmt.Errorf("queue %s not found in virtual host %s", brief.Quoted(queue), brief.Quoted(c.VHost))
		}
	}
	if err := m.run(c.Queue); err != nil {
		return err
	}
	text := m.text()
	if c.Output == "" || c.Output == "-" {
		_, err = streams.Stdout.Write([]byte(text))
	} else {
		err = writeNew(c.Output, text)
	}
	fmt.Fprintf(streams.Stderr, "reprise: %s in virtual host %s; read the comments of the file, then run reprise topology plan\n",
		terminal.Plural(len(m.config.Workers), "worker"), terminal.OneLine(c.VHost))
	return err
}

// read returns the state of the broker, and the URL of its AMQP listener without a user.
func (c *importCmd) read(ctx context.Context, streams terminal.IO) (*doctor.Broker, string, error) {
	if c.Definitions != "" {
		text, err := read(c.Definitions, streams)
		if err != nil {
			return nil, "", err
		}
		b, err := doctor.Parse(text, c.VHost)
		return b, brokerURL("amqp", "localhost", c.VHost), err
	}
	m, err := dial.Management("--management", c.Management, c.VHost)
	if err != nil {
		return nil, "", err
	}
	b, err := doctor.Read(ctx, *m, c.VHost)
	if err != nil {
		return nil, "", err
	}
	scheme, host := "amqp", "localhost"
	if u, err := url.Parse(m.URL); err == nil {
		host = u.Hostname()
	}
	for _, l := range b.Listeners {
		if l.Protocol == "amqp" || l.Protocol == "amqp/ssl" {
			scheme = map[string]string{"amqp": "amqp", "amqp/ssl": "amqps"}[l.Protocol]
			host = net.JoinHostPort(host, strconv.Itoa(l.Port))
			break
		}
	}
	return b, brokerURL(scheme, host, c.VHost), nil
}

// brokerURL returns the URL of a virtual host. It escapes more than a path requires: the configuration expands ${, and a broker URL
// has no @ or comma after its hosts.
func brokerURL(scheme, host, vhost string) string {
	if vhost == "/" {
		return scheme + "://" + host
	}
	return scheme + "://" + host + "/" + strings.ReplaceAll(url.QueryEscape(vhost), "+", "%20")
}

// writeNew writes a file that does not exist yet.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return exit.Usagef("file %s already exists (use another name)", name)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
