package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
)

// embeddedSample is the interval of the ledger's samples with the embedded broker, which reports current figures.
const embeddedSample = 3 * time.Second

// configuredArchiveService returns the archive service of a configuration, or nil if the configuration has no archive.
// It also returns the problems in the settings.
func configuredArchiveService(cfg *config.Config, log *slog.Logger) (*archiveService, []config.Problem) {
	if cfg.Archive == nil {
		return nil, nil
	}
	var wrong []config.Problem
	refuse := func(at config.Position, err error) {
		if err != nil {
			wrong = append(wrong, config.Problem{Position: at, Text: err.Error()})
		}
	}
	var err error
	d := archiveServiceConfig{store: cfg.Archive.Store, archive: archive.Config{
		Workers: workerConfigs(cfg.Workers), Queues: cfg.Archive.Queues, Keep: cfg.Archive.Retention, KeepByQueue: map[string]time.Duration{},
	}}
	a, at := &d.archive, cfg.Archive.At
	for _, r := range cfg.Archive.Redact {
		a.Redact = append(a.Redact, archive.Field(r))
	}
	for _, r := range cfg.Archive.Columns {
		a.Columns = append(a.Columns, archive.Field(r))
	}
	for _, r := range cfg.Archive.Groups {
		a.Groups = append(a.Groups, archive.GroupRule(r))
	}
	for _, r := range cfg.Archive.Rules {
		a.KeepByQueue[r.Queue] = r.Retention
	}
	if c := cfg.Console; c != nil {
		at = c.At
		d.listen, d.flag, d.tokens = c.Listen, "console", c.Tokens
		a.Console = archive.Console{URL: c.URL, Secure: c.Secure, Prefix: c.Prefix, TraceURL: c.TraceURL}
		if c.Tokens != "" {
			if a.Console.Tokens, err = readTokens(c.Tokens); err != nil {
				refuse(at, fmt.Errorf("the tokens of the console: %w", err))
			}
		}
		if c.Management != "" {
			m, err := consoleManagement("management", c.Management, virtualHost(cfg.Broker))
			refuse(at, err)
			a.Management = (*archive.Management)(m)
		}
	}
	if a.Notify, err = notifyOf(cfg.Notify); err != nil && len(wrong) == 0 {
		refuse(at, err)
	}
	made, err := newArchiveService(d, log)
	if err != nil {
		refuse(cfg.Archive.At, err)
		return nil, wrong
	}
	if cfg.Broker == "" {
		made.archive.Sample = embeddedSample
		if d.listen != "" {
			made.figures = newPipeListener()
			made.archive.Management = &archive.Management{URL: "http://broker", User: guest, Password: guest, Client: made.figures.client()}
		}
	}
	if len(wrong) == 0 {
		refuse(at, made.check())
	}
	return made, wrong
}

func workerConfigs(workers []config.Worker) (all []reprise.WorkerConfig) {
	for _, w := range workers {
		all = append(all, w.WorkerConfig)
	}
	return all
}

// runner returns a runner that never fails, so that the workers continue if the service fails. Failed messages then stay
// in their queues.
func (d *archiveService) runner(client *reprise.Client, workers []namedWorker) reprise.Runner {
	if d == nil {
		return reprise.RunnerFunc(func(context.Context) error { return nil })
	}
	var own []archive.Worker
	for _, w := range workers {
		own = append(own, archive.Worker{Worker: w.Worker, Config: w.config})
	}
	d.Connect(client, own...)
	return reprise.RunnerFunc(func(ctx context.Context) error {
		_ = d.run(ctx, func(err error) { d.log.Error("server of the console stopped", "error", err) }) // the archive logs errors
		return nil
	})
}

// serveFigures serves the management API of the broker only to this process. The console uses the same API for all
// brokers.
func (d *archiveService) serveFigures(b *embeddedBroker) *webServer {
	if d == nil || d.figures == nil {
		return &webServer{}
	}
	return serveWeb("figures of the broker", d.figures, b.Management(), d.log)
}

// inspector returns a function that reads queues from the management API, or nil if the console does not know the API.
func (d *archiveService) inspector() func(context.Context, string) (topology.Queue, error) {
	if d == nil || d.archive.Management == nil {
		return nil
	}
	return d.archive.Management.Queue
}
