package upcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// check reports the errors that a start would find, and prints the warnings.
func (c *Command) check(ctx context.Context, streams terminal.IO, cfg *config.Config, parts *parts, warnings []string, log *slog.Logger) error {
	if err := cfg.Refuse(parts.unwritable(cfg)...); err != nil {
		return exit.Usage(err)
	}
	if c.Connect {
		if cfg.Broker == "" && cfg.Outbox == nil {
			return exit.Usagef("--connect requires \"broker:\" or \"outbox:\" in the configuration file")
		}
		risks, err := checkBroker(ctx, cfg, parts, log)
		if err := errors.Join(parts.outbox.check(ctx), err); err != nil {
			return err
		}
		warnings = append(warnings, risks...)
	}
	for _, w := range warnings {
		fmt.Fprintf(streams.Stderr, "%s: warning: %s\n", cfg.Name(), w)
	}
	found := terminal.Plural(len(cfg.Workers), "worker")
	if len(cfg.Cron) > 0 {
		found += ", " + terminal.Plural(len(cfg.Cron), "periodic message")
	}
	_, err := fmt.Fprintf(streams.Stdout, "%s: ok, %s\n", cfg.Name(), found)
	return err
}

// unwritable returns the SQLite files that cannot be written.
func (p *parts) unwritable(cfg *config.Config) (all []config.Problem) {
	add := func(at config.Position, what string, err error) {
		if err != nil {
			all = append(all, config.Problem{Position: at, Text: what + ": " + err.Error()})
		}
	}
	if p.archive != nil {
		add(cfg.Archive.At, "archive", p.archive.Writable())
	}
	if p.outbox != nil {
		add(cfg.Outbox.At, "outbox", p.outbox.Writable())
	}
	for _, x := range p.stores.all {
		add(x.at, "duplicates", x.db.Writable())
	}
	return all
}

// checkTimeout limits the requests to a server.
const checkTimeout = 30 * time.Second

// check returns an error if the database cannot be used. It changes nothing.
func (b *box) check(ctx context.Context) error {
	if b == nil {
		return nil
	}
	ctx, cancel := dial.Within(ctx, checkTimeout)
	defer cancel()
	if err := b.Check(ctx, b.cfg.Outbox.Tables); err != nil {
		return fmt.Errorf("outbox %s: %w", b.Name, err)
	}
	return nil
}

// checkBroker returns all conflicts of the declared queues and exchanges with objects on the broker, and warnings about work
// queues that can lose messages, and about destinations that do not exist.
func checkBroker(ctx context.Context, cfg *config.Config, parts *parts, log *slog.Logger) (warnings []string, err error) {
	if cfg.Broker == "" {
		return nil, nil
	}
	ctx, cancel := dial.Within(ctx, checkTimeout)
	defer cancel()
	client, err := dial.Broker(ctx, cfg.Broker, &reprise.Config{Logger: log, Name: "reprise up --check", Inspect: parts.archive.Inspector()})
	if err != nil {
		return nil, err
	}
	defer dial.HangUp(client, dial.CloseTimeout)
	var conflicts []error
	for _, p := range parts.workers {
		worker, err := reprise.NewWorker(client, p.conf)
		if err != nil {
			return nil, exit.Usage(err)
		}
		if err := worker.Check(ctx); err != nil {
			conflicts = append(conflicts, fmt.Errorf("queue %s: %w", p.Queue, err))
			continue
		}
		risks, err := worker.Risks(ctx)
		if err != nil {
			risks = []string{"cannot read the arguments: " + err.Error()}
		}
		for _, risk := range risks {
			warnings = append(warnings, fmt.Sprintf("queue %s: %s", p.Queue, risk))
		}
	}
	left, err := parts.unconsumed(ctx)
	if err != nil {
		left = []string{"cannot list the queues: " + err.Error()}
	}
	warnings = append(warnings, left...)
	if cfg.Schedule != nil {
		if err := cfg.Schedule.Check(ctx, client); err != nil {
			conflicts = append(conflicts, fmt.Errorf("schedule: %w", err))
		}
	}
	missing, err := notFound(ctx, client, parts.archive.Topology(ctx), foreign(cfg))
	return append(warnings, missing...), errors.Join(append(conflicts, err)...)
}
