package upcmd

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/cmd/reprise/internal/telemetry"
	"github.com/reprisemq/reprise/outbox"
)

// box runs the outbox of a configuration: it publishes its messages, and inserts the periodic messages of the file and the messages to
// the exchange of schedule. A nil *box is a configuration without an outbox.
type box struct {
	*archiving.Outbox
	traces  *telemetry.Telemetry
	log     *slog.Logger
	changed chan struct{} // receives a value after cfg was replaced

	mu  sync.Mutex
	cfg *config.Config // a reload changes only its cron and its workers
}

// newBox returns the outbox of a configuration, or nil without one. It does not connect.
func newBox(cfg *config.Config, traces *telemetry.Telemetry, log *slog.Logger) (*box, []config.Problem) {
	if cfg.Outbox == nil {
		return nil, nil
	}
	o, err := archiving.NewOutbox(cfg.Outbox.Store, outbox.Config{App: cfg.Outbox.App, Prefix: cfg.Outbox.Prefix, BeforeInsert: traces.BeforeInsert(), Logger: log})
	if err != nil {
		return nil, []config.Problem{{Position: cfg.Outbox.At, Text: "outbox: " + err.Error()}}
	}
	return &box{Outbox: o, traces: traces, log: log, changed: make(chan struct{}, 1), cfg: cfg}, nil
}

// runner returns a runner that waits for the database, so that the workers continue without it. Like a worker, the runner fails if
// the broker refuses the queues of schedule.
func (b *box) runner(client *reprise.Client) reprise.Runner {
	return reprise.RunnerFunc(func(ctx context.Context) error {
		for b != nil && ctx.Err() == nil {
			if err := b.run(ctx, client); err != nil {
				return err
			}
		}
		return nil
	})
}

// run opens the box and publishes its messages, until ctx is canceled or the entries are replaced. It returns an error only if the
// process stops.
func (b *box) run(ctx context.Context, client *reprise.Client) error {
	opened, err := b.Await(ctx, b.log)
	if err != nil {
		return err
	}
	cfg := b.current()
	for _, e := range cfg.Cron {
		if err := opened.Every(e.Entry); err != nil {
			b.log.Error("periodic message not valid", "entry", e.Name, "error", err)
		}
	}
	b.Show(opened)
	b.log.Info("outbox", "database", b.Name, "cron", len(cfg.Cron), "tables", len(cfg.Outbox.Tables))
	relay, err := outbox.NewRelay(opened, b.traces.Relay(client), outbox.RelayConfig{Tables: cfg.Outbox.Tables})
	if err != nil {
		return err
	}
	var group reprise.Group
	group.Add(relay)
	if cfg.Schedule != nil {
		intake, err := outbox.NewIntake(opened, client, *cfg.Schedule)
		if err != nil {
			return err
		}
		group.Add(intake)
		b.log.Info("scheduling messages", "exchange", cfg.Schedule.Exchange)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		select {
		case <-b.changed:
			cancel()
		case <-ctx.Done():
		}
	})
	if cfg.Broker != "" {
		watching.Go(func() { b.warn(ctx, client, cfg) })
	}
	err = group.Run(ctx)
	cancel()
	return err
}

// warn logs the destinations that do not exist. The relay reports each failed message, but only when it is due.
func (b *box) warn(ctx context.Context, client *reprise.Client, cfg *config.Config) {
	missing, err := notFound(ctx, client, nil, foreign(cfg))
	if err != nil && ctx.Err() == nil {
		b.log.Debug("cannot check the destinations of the outbox", "error", err)
	}
	if len(missing) > 0 {
		b.log.Warn("destinations not found", "destinations", strings.Join(missing, "; "))
	}
}

func (b *box) current() *config.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cfg
}

// replace replaces the periodic messages, and returns the difference, or nil if there is none.
func (b *box) replace(cfg *config.Config) *difference {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.cfg.Cron
	b.cfg = cfg
	d := newDifference()
	find := func(all []config.Cron, name string) int {
		return slices.IndexFunc(all, func(e config.Cron) bool { return e.Name == name })
	}
	for _, e := range cfg.Cron {
		switch i := find(before, e.Name); {
		case i < 0:
			d.Added = append(d.Added, e.Name)
		case reflect.DeepEqual(before[i].Entry, e.Entry):
			d.Unchanged++
		default:
			d.Changed = append(d.Changed, e.Name)
		}
	}
	for _, e := range before {
		if find(cfg.Cron, e.Name) < 0 {
			d.Removed = append(d.Removed, e.Name)
		}
	}
	if len(d.Added)+len(d.Changed)+len(d.Removed) == 0 {
		return nil
	}
	select {
	case b.changed <- struct{}{}:
	default: // the next start of the relay uses the entries
	}
	return &d
}

// stores returns the database for health checks.
func (b *box) stores() []health.Store {
	if b == nil {
		return nil
	}
	return b.Stores()
}
