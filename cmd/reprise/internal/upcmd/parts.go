package upcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/cmd/reprise/internal/telemetry"
	"github.com/reprisemq/reprise/cmd/reprise/internal/version"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

// parts contains everything that the workers need.
type parts struct {
	workers []*part // of the start
	stores  *stores
	archive *archiving.Service // nil: no archive
	outbox  *box               // nil: no outbox
	reaper  *handler.Reaper

	telemetry *telemetry.Telemetry // nil: nothing is exported
	results   *resultSender
	warnings  []string

	crew atomic.Pointer[crew] // nil until the workers run
}

// part is a worker with its handler.
type part struct {
	config.Worker
	handler *workHandler
	conf    reprise.WorkerConfig // with the handler and the middleware
}

// newParts creates the parts and reports invalid ones. It does not connect.
func newParts(cfg *config.Config, log *slog.Logger) (*parts, error) {
	p := &parts{stores: &stores{memory: map[string]*idempotent.Memory{}}, reaper: &handler.Reaper{Command: reap}}
	exporter, unusable, warnings := configuredTelemetry(cfg.Telemetry, log)
	p.telemetry, p.warnings, p.results = exporter, warnings, &resultSender{telemetry: exporter, log: log}
	workers, wrong, err := p.newWorkers(cfg.Workers, log)
	p.workers, wrong = workers, append(wrong, unusable...)
	outbox, unusable := newBox(cfg, exporter, log)
	p.outbox, wrong = outbox, append(wrong, unusable...)
	archive, unusable := configuredArchiveService(cfg, outbox, log)
	p.archive, wrong = archive, append(wrong, unusable...)
	if _, err := listenTLS(cfg.Listen); err != nil {
		wrong = append(wrong, config.Problem{Position: cfg.Listen.At, Text: "listen: " + err.Error()})
	}
	if addresses, err := amqpconn.ParseURL(cfg.Broker); err == nil { // Broker is empty or valid
		if err := addresses.CheckFiles(); err != nil {
			wrong = append(wrong, config.Problem{Position: cfg.BrokerAt, Text: err.Error()})
		}
	}
	if len(wrong) > 0 {
		err = cfg.Refuse(wrong...)
	}
	if err != nil {
		closeAll(p.workers)
		p.close()
		return nil, err
	}
	return p, nil
}

// newWorkers creates the parts of workers, and reports missing programs and files.
func (p *parts) newWorkers(workers []config.Worker, log *slog.Logger) (all []*part, wrong []config.Problem, err error) {
	for _, w := range workers {
		h, missing, err := newHandler(w, p.results.of(w), p.reaper, log)
		if err != nil {
			return all, wrong, err
		}
		all = append(all, &part{Worker: w, handler: h})
		store, unusable := p.stores.store(w)
		if unusable != nil {
			missing = append(missing, config.Problem{Position: w.Duplicates.At, Text: unusable.Error()})
		}
		if wrong = append(wrong, missing...); len(missing) > 0 {
			continue
		}
		conf, err := protect(w, store, log)
		if err == nil {
			conf.Handler = h.Handler
			withoutLimit(w.Results, &conf.Policy)
			conf.Middleware = append(p.telemetry.Middleware(), conf.Middleware...)
			err = conf.Validate()
		}
		if err != nil {
			return all, wrong, fmt.Errorf("queue %s: %w", w.Queue, err)
		}
		all[len(all)-1].conf = conf
	}
	return all, wrong, nil
}

// startAll starts the handlers whose programs keep running.
func startAll(ctx context.Context, parts []*part) error {
	errs := make([]error, len(parts))
	var starting sync.WaitGroup
	for i, p := range parts {
		starting.Go(func() {
			if err := p.handler.start(ctx); err != nil {
				errs[i] = fmt.Errorf("queue %s: %w", p.Queue, err)
			}
		})
	}
	starting.Wait()
	return errors.Join(errs...)
}

func closeAll(parts []*part) {
	var closing sync.WaitGroup
	for _, p := range parts {
		closing.Go(p.handler.close)
	}
	closing.Wait()
}

// kill kills all running programs.
func (p *parts) kill() {
	if c := p.crew.Load(); c != nil {
		c.kill()
		return
	}
	for _, w := range p.workers {
		w.handler.kill()
	}
}

// configuredTelemetry returns the exporter of traces and metrics.
func configuredTelemetry(c *config.Telemetry, log *slog.Logger) (*telemetry.Telemetry, []config.Problem, []string) {
	t, warnings, err := telemetry.New(c, version.String(), log)
	if err == nil {
		return t, nil, warnings
	}
	at := config.Position{}
	if c != nil {
		at = c.At
	}
	return nil, []config.Problem{{Position: at, Text: "telemetry: " + err.Error()}}, warnings
}

// close closes what does not belong to a single worker.
func (p *parts) close() {
	p.telemetry.Stop()
	p.reaper.Close()
	p.stores.close()
	if p.outbox != nil {
		p.outbox.Close()
	}
	if p.archive != nil {
		p.archive.Close()
	}
}
