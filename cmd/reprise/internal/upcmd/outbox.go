package upcmd

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/outbox"
)

// box runs the outbox of a configuration: it publishes its messages, and inserts the periodic messages of the file and the messages to
// the exchange of schedule. A nil *box is a configuration without an outbox.
type box struct {
	*archiving.Outbox
	intake  *outbox.IntakeConfig // nil: none
	tables  []outbox.Table
	log     *slog.Logger
	changed chan struct{} // receives a value after entries was replaced

	mu      sync.Mutex
	entries []config.Cron
}

// newBox returns the outbox of a configuration, or nil without one. It does not connect.
func newBox(cfg *config.Config, log *slog.Logger) (*box, []config.Problem) {
	if cfg.Outbox == nil {
		return nil, nil
	}
	o, err := archiving.NewOutbox(cfg.Outbox.Store, outbox.Config{App: cfg.Outbox.App, Prefix: cfg.Outbox.Prefix, Logger: log})
	if err != nil {
		return nil, []config.Problem{{Position: cfg.Outbox.At, Text: "outbox: " + err.Error()}}
	}
	return &box{Outbox: o, intake: cfg.Schedule, tables: cfg.Outbox.Tables, log: log, changed: make(chan struct{}, 1), entries: cfg.Cron}, nil
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
	entries := b.current()
	for _, e := range entries {
		if err := opened.Every(e.Entry); err != nil {
			b.log.Error("periodic message not valid", "entry", e.Name, "error", err)
		}
	}
	b.Show(opened)
	b.log.Info("outbox", "database", b.Name, "cron", len(entries), "tables", len(b.tables))
	relay, err := outbox.NewRelay(opened, client, outbox.RelayConfig{Tables: b.tables})
	if err != nil {
		return err
	}
	var group reprise.Group
	group.Add(relay)
	if b.intake != nil {
		intake, err := outbox.NewIntake(opened, client, *b.intake)
		if err != nil {
			return err
		}
		group.Add(intake)
		b.log.Info("scheduling messages", "exchange", b.intake.Exchange)
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
	err = group.Run(ctx)
	cancel()
	return err
}

func (b *box) current() []config.Cron {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries
}

// replace replaces the periodic messages, and returns the difference, or nil if there is none.
func (b *box) replace(entries []config.Cron) *difference {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := newDifference()
	find := func(all []config.Cron, name string) int {
		return slices.IndexFunc(all, func(e config.Cron) bool { return e.Name == name })
	}
	for _, e := range entries {
		switch i := find(b.entries, e.Name); {
		case i < 0:
			d.Added = append(d.Added, e.Name)
		case reflect.DeepEqual(b.entries[i].Entry, e.Entry):
			d.Unchanged++
		default:
			d.Changed = append(d.Changed, e.Name)
		}
	}
	for _, e := range b.entries {
		if find(entries, e.Name) < 0 {
			d.Removed = append(d.Removed, e.Name)
		}
	}
	if len(d.Added)+len(d.Changed)+len(d.Removed) == 0 {
		return nil
	}
	b.entries = entries
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

// unservedCron describes the periodic messages to queues that no worker of the file declares, for the embedded broker. It returns ""
// if there are none.
func unservedCron(cfg *config.Config) string {
	if cfg.Broker != "" {
		return "" // other programs may declare the queues
	}
	declared := map[string]bool{}
	for _, w := range cfg.Workers {
		for _, q := range w.Strategy.WithDefaults().Route.Topology(w.Queue).Merge(w.Topology).Queues {
			declared[q.Name] = true
		}
	}
	var names []string
	for _, e := range cfg.Cron {
		if m := e.Message; m.Exchange == "" && !declared[m.RoutingKey] {
			names = append(names, fmt.Sprintf("%s: %s", e.Name, brief.Quoted(m.RoutingKey)))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no worker declares the queues of these entries of cron, so their messages wait in the outbox until the queues exist: " + strings.Join(names, ", ")
}
