package plancmd

import (
	"bytes"
	"context"
	"os"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/graph"
)

// Topology is reprise topology.
type Topology struct {
	Graph  graphCmd  `cmd:"" help:"Draw the exchanges and queues of a configuration."`
	Plan   planCmd   `cmd:"" help:"Compare a configuration with a broker."`
	Import importCmd `cmd:"" help:"Write a configuration for the queues of a broker."`
	Apply  applyCmd  `cmd:"" help:"Create the missing exchanges, queues and bindings of a configuration."`
}

type graphCmd struct {
	Config     []string `short:"c" sep:"none" default:"reprise.yaml" placeholder:"FILE" help:"Configuration file, or directory of such files. Repeatable. Default ${default}."`
	Queue      string   `placeholder:"NAME" help:"Work queue. Default: all."`
	Format     string   `enum:"dot,mermaid" default:"dot" placeholder:"FORM" help:"Format: dot (Graphviz) or mermaid (Markdown). Default ${default}."`
	Output     string   `short:"o" placeholder:"FILE" help:"Output file. Default: stdout."`
	Management string   `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"URL of the management API, to show the depth of each queue."`
}

// Help implements kong.HelpProvider.
func (graphCmd) Help() string {
	return `Draws the exchanges and queues that the workers of a file declare, and the path of a message: publication, wait
queues with their delays, failed queue. Wait queues that differ only in their delay are one node. The command does not
connect to a broker without --management.

Examples:
  reprise topology graph -c reprise.yaml | dot -Tsvg >topology.svg
  reprise topology graph --queue orders --format mermaid
  reprise topology graph --management http://guest:guest@rabbit:15672 | dot -Tpng >now.png
`
}

// Run draws the graph.
func (c *graphCmd) Run(ctx context.Context, streams terminal.IO) error {
	cfg, err := config.Load(c.Config...)
	if err != nil {
		return exit.Usage(err)
	}
	workers, err := workersOf(cfg, c.Queue)
	if err != nil {
		return err
	}
	g := graph.New(graphWorkers(workers))
	if c.Management != "" {
		counts, err := queueCounts(ctx, c.Management, dial.VirtualHost(cfg.Broker))
		if err != nil {
			return err
		}
		g.Count(counts)
	}
	var b bytes.Buffer
	write := g.WriteDOT
	if c.Format == "mermaid" {
		write = g.WriteMermaid
	}
	if err := write(&b); err != nil {
		return err
	}
	if c.Output != "" && c.Output != "-" {
		return os.WriteFile(c.Output, b.Bytes(), 0o666)
	}
	_, err = streams.Stdout.Write(b.Bytes())
	return err
}

// graphWorkers converts workers to the workers of a graph.
func graphWorkers(workers []config.Worker) (all []graph.Worker) {
	for _, w := range workers {
		all = append(all, graph.Of(w.WorkerConfig))
	}
	return all
}

// queueCounts returns the depths of the queues in a virtual host, from a management API.
func queueCounts(ctx context.Context, rawURL, vhost string) (map[string]graph.Count, error) {
	m, err := dial.Management("--management", rawURL, vhost)
	if err != nil {
		return nil, err
	}
	queues, err := m.Queues(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]graph.Count{}
	for _, q := range queues {
		if q.Ready.Known && q.Unacked.Known {
			counts[q.Name] = graph.Count{Ready: q.Ready.Value, Unacked: q.Unacked.Value}
		}
	}
	return counts, nil
}
