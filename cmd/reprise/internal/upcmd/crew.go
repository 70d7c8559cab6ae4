package upcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/limit"
)

// crew runs the workers of a configuration, and replaces those that a reload changes. The other workers continue.
type crew struct {
	*parts
	client *reprise.Client
	checks *health.Checks
	log    *slog.Logger
	failed chan struct{} // closed when a worker fails
	fail   func()

	reloading sync.Mutex // held by reload

	mu       sync.Mutex
	cfg      *config.Config
	units    []*unit // in the order of the configuration
	stopping bool
}

// unit is a running worker.
type unit struct {
	*part
	worker *reprise.Worker
	limit  *limit.Limit  // nil: none
	drain  time.Duration // of the stop of the process
	cut    *interruptedHandlers
	ended  chan struct{}
	err    error // valid after ended is closed
}

// unlimited is the drain timeout of a worker that a reload stops: a handler that it cut off would run again.
const unlimited = 100 * 365 * 24 * time.Hour

func newCrew(cfg *config.Config, parts *parts, client *reprise.Client, checks *health.Checks, log *slog.Logger) (*crew, error) {
	failed := make(chan struct{})
	c := &crew{parts: parts, client: client, checks: checks, log: log, cfg: cfg, failed: failed, fail: sync.OnceFunc(func() { close(failed) })}
	for _, p := range parts.workers {
		u, err := c.unit(p, len(parts.workers) > 1) // a conflict of one queue does not stop the other workers
		if err != nil {
			return nil, err
		}
		c.units = append(c.units, u)
	}
	c.show()
	return c, nil
}

func (c *crew) unit(p *part, keepDeclaring bool) (*unit, error) {
	u := &unit{part: p, cut: &interruptedHandlers{}, ended: make(chan struct{})}
	conf := p.conf
	conf.Middleware = append([]reprise.Middleware{u.cut.middleware}, conf.Middleware...)
	conf.KeepDeclaring = keepDeclaring
	u.drain, conf.DrainTimeout = cmp.Or(conf.DrainTimeout, reprise.DefaultDrainTimeout), unlimited
	var err error
	if p.Shared != nil {
		shared := *p.Shared
		shared.Logger = c.log
		if u.limit, err = limit.New(c.client, shared); err != nil {
			return nil, err
		}
		conf.Limiter = u.limit
	}
	if u.worker, err = reprise.NewWorker(c.client, conf); err != nil {
		u.leave()
	}
	return u, err
}

// leave returns the share of the limit.
func (u *unit) leave() {
	if u.limit != nil {
		u.limit.Close()
	}
}

// close closes what the worker has used.
func (u *unit) close() {
	u.leave()
	u.handler.close()
}

// show makes the health checks and the console show the running workers.
func (c *crew) show() {
	var watched []health.Worker
	var archived []archive.Worker
	for _, u := range c.units {
		watched = append(watched, health.Worker{Worker: u.worker, Queue: u.Queue, Handler: u.handler.healthy})
		archived = append(archived, archive.Worker{Worker: u.worker, Config: u.conf})
	}
	c.checks.Works(c.client, watched)
	c.archive.Show(c.client, archived...)
}

// Run runs the workers until ctx is canceled or a worker fails. Then it drains all of them.
func (c *crew) Run(ctx context.Context) error {
	c.mu.Lock()
	for _, u := range c.units {
		go c.work(u)
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-c.failed:
	}
	c.mu.Lock()
	c.stopping = true
	units := slices.Clone(c.units)
	c.mu.Unlock()
	var stopping sync.WaitGroup
	for _, u := range units {
		stopping.Go(func() {
			ctx, cancel := context.WithTimeoutCause(context.Background(), u.drain, reprise.ErrDrainTimeout)
			defer cancel()
			u.stop(ctx)
		})
	}
	stopping.Wait()
	c.reloading.Lock() // a reload has closed what it created
	defer c.reloading.Unlock()
	var errs []error
	for _, u := range units {
		errs = append(errs, u.err)
	}
	return errors.Join(errs...)
}

// work runs a worker that has not ended.
func (c *crew) work(u *unit) {
	defer close(u.ended)
	if err := cmp.Or(u.worker.Run(context.Background()), u.cut.error()); err != nil {
		u.err = fmt.Errorf("queue %s: %w", u.Queue, err)
		c.fail()
	}
}

// stop drains the worker. When ctx is done, it interrupts the handlers.
func (u *unit) stop(ctx context.Context) {
	_ = u.worker.Shutdown(ctx) // Run returns the error
	<-u.ended
}

// changes is the result of a reload.
type changes struct {
	difference             // of the workers
	Cron       *difference `json:"cron,omitempty"`
}

func (c changes) String() string {
	text := c.difference.text("worker")
	if c.Cron != nil {
		text += "; cron: " + c.Cron.text("message")
	}
	return text
}

// difference contains the names of objects of two configurations.
type difference struct {
	Added     []string `json:"added"`
	Changed   []string `json:"changed"`
	Removed   []string `json:"removed"`
	Unchanged int      `json:"unchanged"`
}

func newDifference() difference {
	return difference{Added: []string{}, Changed: []string{}, Removed: []string{}} // not null in JSON
}

func (d difference) text(noun string) string {
	var parts []string
	for _, p := range []struct {
		verb  string
		names []string
	}{{"added", d.Added}, {"changed", d.Changed}, {"removed", d.Removed}} {
		if len(p.names) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.names, ", "))
		}
	}
	return strings.Join(append(parts, terminal.Plural(d.Unchanged, noun)+" unchanged"), "; ")
}

// reload applies a configuration: it replaces the workers that differ, adds new ones, and removes others. A worker stops
// after its handlers have finished, whatever time they need. If reload returns an error, nothing has changed.
func (c *crew) reload(ctx context.Context, cfg *config.Config) (changes, error) {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	if keys := cfg.Changed(c.cfg); len(keys) > 0 {
		return changes{}, fmt.Errorf("cannot change %s without a restart (undo the change, or restart reprise up)", strings.Join(keys, ", "))
	}
	before := map[string]*unit{}
	for _, u := range c.units {
		before[u.Queue] = u
	}
	result := changes{difference: newDifference()}
	var wanted []config.Worker
	kept := map[string]*unit{}
	for _, w := range cfg.Workers {
		u := before[w.Queue]
		switch {
		case u == nil:
			result.Added = append(result.Added, w.Queue)
		case u.Source == w.Source:
			kept[w.Queue] = u
			continue
		default:
			result.Changed = append(result.Changed, w.Queue)
		}
		wanted = append(wanted, w)
	}
	result.Unchanged = len(kept)
	created, err := c.create(ctx, cfg, wanted)
	if err != nil {
		return changes{}, err
	}
	for _, u := range c.units {
		if kept[u.Queue] == nil && created[u.Queue] == nil {
			result.Removed = append(result.Removed, u.Queue)
		}
	}
	result.Cron = c.outbox.replace(cfg)
	c.replace(ctx, cfg, before, kept, created)
	return result, nil
}

// create creates units for workers, and starts their handlers.
func (c *crew) create(ctx context.Context, cfg *config.Config, workers []config.Worker) (created map[string]*unit, err error) {
	parts, problems, err := c.newWorkers(workers, c.log)
	if err == nil {
		err = cfg.Refuse(problems...)
	}
	defer func() {
		if err != nil {
			for _, u := range created {
				u.leave()
			}
			closeAll(parts)
		}
	}()
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeoutCause(ctx, prepareTimeout, errors.New("a database does not respond"))
	defer cancel()
	if err := c.stores.prepare(ready, c.log); err != nil {
		return nil, err
	}
	if err := startAll(ctx, parts); err != nil {
		return nil, err
	}
	created = map[string]*unit{}
	for _, p := range parts {
		u, err := c.unit(p, true)
		if err != nil {
			return created, exit.Usage(err)
		}
		created[p.Queue] = u
	}
	return created, nil
}

// prepareTimeout is the maximum time that a reload waits for the databases of new workers.
const prepareTimeout = 10 * time.Second

// replace stops the earlier units that are not kept, and starts each created unit as soon as its predecessor has ended, so that a long
// attempt delays only its own queue.
func (c *crew) replace(ctx context.Context, cfg *config.Config, before, kept, created map[string]*unit) {
	var replacing sync.WaitGroup
	for queue, u := range before {
		if kept[queue] != nil {
			continue
		}
		replacing.Go(func() {
			u.stop(context.WithoutCancel(ctx))
			u.close()
			c.exchange(u, created[queue])
		})
	}
	for queue, u := range created {
		if before[queue] == nil {
			c.exchange(nil, u)
		}
	}
	replacing.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	position := map[string]int{}
	for i, w := range cfg.Workers {
		position[w.Queue] = i
	}
	slices.SortStableFunc(c.units, func(a, b *unit) int { return cmp.Compare(position[a.Queue], position[b.Queue]) })
	c.cfg = cfg
	c.show()
}

// exchange starts a created unit in place of an ended one, unless the process stops. One of the two may be nil.
func (c *crew) exchange(ended, created *unit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping || ended != nil && ended.err != nil { // Run returns the error
		if created != nil {
			created.close()
		}
		return
	}
	c.units = slices.DeleteFunc(slices.Clone(c.units), func(u *unit) bool { return u == ended })
	if created != nil {
		c.units = append(c.units, created)
		go c.work(created)
	}
	c.show()
}

// close closes the handlers after the workers have ended.
func (c *crew) close() {
	for _, u := range c.units {
		u.close()
	}
}

// kill kills all running programs.
func (c *crew) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.units {
		u.handler.kill()
	}
}
