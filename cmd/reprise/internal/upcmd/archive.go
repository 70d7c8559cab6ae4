package upcmd

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/topology"
)

// configuredArchiveService returns the archive service of a configuration, or nil if the configuration has no archive.
// It also returns the problems in the settings.
func configuredArchiveService(cfg *config.Config, outbox *box, log *slog.Logger) (*archiving.Service, []config.Problem) {
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
	d := archiving.Config{Store: cfg.Archive.Store, Settings: archive.Config{
		Workers: cfg.WorkerConfigs(), Queues: cfg.Archive.Queues, Keep: cfg.Archive.Retention, KeepByQueue: map[string]time.Duration{},
	}}
	a, at := &d.Settings, cfg.Archive.At
	if outbox != nil {
		a.Outbox = outbox.Box
	}
	if cfg.Schedule != nil {
		a.Queues = append(slices.Clone(a.Queues), topology.FailedQueue(cfg.Schedule.Exchange))
	}
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
		d.Listen, d.Flag, d.Tokens = c.Listen, "console", c.Tokens
		a.Console = archive.Console{URL: c.URL, Secure: c.Secure, Prefix: c.Prefix, TraceURL: c.TraceURL}
		if c.Tokens != "" {
			if a.Console.Tokens, err = archiving.ReadTokens(c.Tokens); err != nil {
				refuse(at, fmt.Errorf("the tokens of the console: %w", err))
			}
		}
		if c.Management != "" {
			m, err := dial.Management("management", c.Management, dial.VirtualHost(cfg.Broker))
			refuse(at, err)
			a.Management = (*archive.Management)(m)
		}
	}
	if a.Notify, err = archiving.Notify(cfg.Notify); err != nil && len(wrong) == 0 {
		refuse(at, err)
	}
	made, err := archiving.New(d, log)
	if err != nil {
		refuse(cfg.Archive.At, err)
		return nil, wrong
	}
	if cfg.Broker == "" {
		made.UseEmbedded(embeddedPassword(cfg.Listen))
	}
	if len(wrong) == 0 {
		refuse(at, made.Check())
	}
	return made, wrong
}
