package cli

import (
	"bytes"
	"context"
	"os"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/graph"
)

type graphCmd struct {
	Config     string `short:"c" default:"reprise.yaml" placeholder:"FILE" help:"The configuration. Default ${default}."`
	Queue      string `placeholder:"NAME" help:"Draw the worker of this queue only."`
	Format     string `enum:"dot,mermaid" default:"dot" placeholder:"FORM" help:"dot (Graphviz) or mermaid (Markdown). Default ${default}."`
	Output     string `short:"o" placeholder:"FILE" help:"Write it to a file. Default: stdout."`
	Management string `env:"REPRISE_MANAGEMENT" type:"address" placeholder:"URL" help:"Write on each queue how many messages it has, asked of the management API."`
}

// Help shows examples below the flags.
func (graphCmd) Help() string {
	return `Draws the exchanges and queues that the workers of a file declare, and the ways of a message: where
it is published, where it waits when it has failed and for how long, where it is parked. Wait queues
that differ in their delay only are one. Nothing is run, and no broker needed without --management.

Examples:
  reprise topology graph -c reprise.yaml | dot -Tsvg >topology.svg
  reprise topology graph --queue orders --format mermaid
  reprise topology graph --management http://guest:guest@rabbit:15672 | dot -Tpng >now.png
`
}

// Run draws the graph.
func (c *graphCmd) Run(ctx context.Context, streams IO) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return usageError{err}
	}
	workers, err := workersOf(cfg.Workers, c.Queue, c.Config)
	if err != nil {
		return err
	}
	g := graph.New(drawn(workers))
	if c.Management != "" {
		counts, err := queueCounts(ctx, c.Management, virtualHost(cfg.Broker))
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

// drawn converts workers to the workers of a graph.
func drawn(workers []config.Worker) (all []graph.Worker) {
	for _, w := range workers {
		all = append(all, graph.Of(w.WorkerConfig))
	}
	return all
}
