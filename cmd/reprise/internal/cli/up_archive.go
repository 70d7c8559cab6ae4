package cli

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/topology"
)

// configuredArchiveService returns the archive service of a configuration, or nil if the configuration has no archive.
// It also returns the problems in the settings.
func configuredArchiveService(cfg *config.Config, log *slog.Logger) (*archiveService, []config.Problem) {
	if cfg.Archive == nil {
		return nil, nil
	}
	workers := graphWorkers(cfg.Workers)
	d := archiveServiceConfig{
		archive:  cfg.Archive.Store,
		settings: failed.Config{Redact: cfg.Archive.Redact, Columns: cfg.Archive.Columns, Groups: cfg.Archive.Groups, Retention: cfg.Archive.Retention, Rules: cfg.Archive.Rules},
		accounts: accountsOf(workers),
		queues:   queueSource{named: unique(append(failedQueuesOf(workers), cfg.Archive.Queues...))},
		origin:   originOf(cfg.Workers),
		marks:    marksOf(cfg.Workers),
		workers:  cfg.Workers,
		notify:   cfg.Notify,
	}
	var err error
	var wrong []config.Problem
	if c := cfg.Console; c != nil {
		d.listen, d.flag, d.url = c.Listen, "console", c.URL
		d.console = console.Config{Secure: c.Secure, Prefix: c.Prefix, TraceURL: c.TraceURL, Topology: topologies(workers)}
		refuse := func(err error) { wrong = append(wrong, config.Problem{Position: c.At, Text: err.Error()}) }
		d.tokens = c.Tokens
		if c.Tokens != "" {
			if d.console.Tokens, err = readTokens(c.Tokens); err != nil {
				refuse(fmt.Errorf("the tokens of the console: %w", err))
			}
		}
		if c.Management != "" {
			if d.console.Management, err = consoleManagement("management", c.Management, virtualHost(cfg.Broker)); err != nil {
				refuse(err)
			}
		}
	}
	if err := d.check(); err != nil && len(wrong) == 0 {
		at := cfg.Archive.At
		if cfg.Console != nil {
			at = cfg.Console.At
		}
		wrong = append(wrong, config.Problem{Position: at, Text: err.Error()})
	}
	made, err := newArchiveService(d, log)
	if err != nil {
		wrong = append(wrong, config.Problem{Position: cfg.Archive.At, Text: err.Error()})
	}
	return made, wrong
}

// unique returns a list without duplicates.
func unique(all []string) []string {
	var once []string
	seen := map[string]bool{}
	for _, s := range all {
		if !seen[s] {
			once = append(once, s)
		}
		seen[s] = true
	}
	return once
}

// topologies returns the topologies of the workers in a graph.
func topologies(workers []graph.Worker) []topology.Topology {
	var all []topology.Topology
	for _, w := range workers {
		route := w.Strategy.WithDefaults().Route
		parked := route.Failed(topology.Delivery{Queue: w.Queue, RoutingKey: w.Queue})
		all = append(all, route.Topology(w.Queue).Merge(w.Topology, parked.Topology))
	}
	return all
}

// runner returns a runner that never fails, so that the workers continue if the service fails. Failed messages then stay
// in their queues.
func (d *archiveService) runner(client *reprise.Client, workers []namedWorker) reprise.Runner {
	if d == nil {
		return reprise.RunnerFunc(func(context.Context) error { return nil })
	}
	for _, w := range workers {
		d.console.Workers = append(d.console.Workers, console.Worker{Queue: w.queue, State: func() error { return w.Status().Err }, Breaker: w.breaker, Config: &w.config})
	}
	return reprise.RunnerFunc(func(ctx context.Context) error {
		var book sync.WaitGroup
		defer book.Wait()
		d.db.private() // before the ledger opens it
		if d.book != nil {
			book.Go(func() { d.book(ctx) })
		}
		err := d.run(ctx, func(context.Context) (*reprise.Client, error) { return client, nil })
		if err != nil && ctx.Err() == nil {
			ended := fmt.Errorf("archiving stopped: %w", err)
			d.ended.Store(&ended)
			d.log.Error("archiving has stopped: failed messages stay in their queues", "error", err)
		}
		return nil
	})
}

// figures serves the management API of the broker only to this process. The console uses the same API for all brokers.
func (d *archiveService) figures(b *embeddedBroker) *webServer {
	if d == nil || d.listen == "" {
		return &webServer{}
	}
	l := newPipeListener()
	d.console.Management = &console.Management{URL: "http://broker", User: guest, Password: guest, Client: l.client()}
	return serveWeb("figures of the broker", l, b.Management(), d.log)
}

// inspector returns a function that reads queues from the management API, or nil if the console does not know the API.
func (d *archiveService) inspector() func(context.Context, string) (topology.Queue, error) {
	if d == nil || d.console.Management == nil {
		return nil
	}
	return d.console.Management.Queue
}
