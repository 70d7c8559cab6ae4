package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// Run opens the archive, unless Open has opened it, and waits for Connect. Then it moves messages from the failed queues
// into the archive, sends replays, samples the ledger, and records the history, until ctx is canceled or one of the parts
// fails. After an error, failed messages stay in their queues. Run logs an error immediately and Healthy returns it, but
// if this program runs workers (Observer), Run continues to count their results until ctx is canceled. Call Run once.
func (a *Archive) Run(ctx context.Context) error {
	a.mu.Lock()
	a.counting = a.observed
	a.mu.Unlock()
	var counting sync.WaitGroup
	if a.counting {
		counting.Go(func() {
			if err := a.book.Run(ctx); err != nil {
				a.cfg.Logger.Error("cannot add the latest results to the ledger", "error", err)
			}
		})
	}
	err := a.run(ctx)
	if err != nil && ctx.Err() == nil {
		p := *a.phase.Load()
		p.ended = fmt.Errorf("archiving stopped: %w", err)
		a.phase.Store(&p)
		a.cfg.Logger.Error("archiving has stopped: failed messages stay in their queues", "error", err)
	}
	counting.Wait()
	return err
}

func (a *Archive) run(ctx context.Context) error {
	if a.notifier != nil {
		background, stop := context.WithCancel(ctx)
		var notifying sync.WaitGroup
		defer notifying.Wait()
		defer stop()
		notifying.Go(func() { a.notifier.Run(background) })
		notifying.Go(func() { a.watch(background) })
	}
	if a.phase.Load().store == nil {
		if err := a.open(ctx, func(what, name string, open func() error) error {
			return sqlkit.Await(ctx, a.cfg.Logger, what, name, open)
		}); err != nil {
			return err
		}
	}
	if a.notifier != nil {
		if first, err := a.read(ctx); err == nil { // otherwise, all groups in the first poll count as old
			a.notifier.Start(first)
		}
	}
	select {
	case <-a.connected:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return a.connect().serve(ctx)
}

// connect adds the parts that need the broker.
func (a *Archive) connect() *link {
	p := *a.phase.Load()
	l := &link{phase: &p, a: a, client: a.client, fleet: fleet.New(a.client)}
	l.fleet.Observe(p.past.Observe)
	if !a.cfg.ConsoleElsewhere {
		l.replayer = replay.New(a.client, p.store, a.cfg.replays())
		l.rescheduler = waiting.New(a.client, p.store, waiting.Config{Logger: a.cfg.Logger})
	}
	p.link = l
	a.phase.Store(&p)
	return l
}

// link contains the parts of an Archive that need the broker.
type link struct {
	*phase
	a           *Archive
	client      *reprise.Client
	fleet       *fleet.List
	replayer    *replay.Replayer     // nil: none
	rescheduler *waiting.Rescheduler // nil: none
}

// tasks are functions that run until one of them fails, or until the context is canceled.
type tasks struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	sync.WaitGroup
}

func (t *tasks) start(what string, run func(context.Context) error) {
	t.Go(func() {
		if err := run(t.ctx); err != nil && t.ctx.Err() == nil {
			t.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// serve runs the parts until ctx is canceled or a part fails.
func (l *link) serve(ctx context.Context) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t := &tasks{ctx: running, fail: fail}
	if !l.a.cfg.ConsoleElsewhere {
		t.start("replays", l.replayer.Run)
		t.start("retries", l.rescheduler.Run)
	}
	listening, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	context.AfterFunc(running, func() {
		defer hangUp()
		awaitLast(l.fleet)
	})
	t.start("workers", func(context.Context) error {
		if err := l.fleet.Run(listening); err != nil { // the console shows the error
			l.a.cfg.Logger.Info("cannot list workers", "error", err)
		}
		return nil
	})
	t.start("history", func(context.Context) error { l.record(listening); return nil })
	if l.books != nil {
		t.start("ledger", func(ctx context.Context) error {
			l.books.Run(ctx, ledger.Sources{Archive: l.store, Broker: (*ledger.Management)(l.a.cfg.Management)}, l.a.accounts)
			return nil
		})
	}
	if l.store.Config().Expires() {
		t.start("retention", func(ctx context.Context) error { l.purge(ctx); return nil })
	}
	t.start("failed queues", func(ctx context.Context) error {
		l.find(ctx, func(run func(context.Context) error) { t.start("failed queues", run) })
		return nil
	})
	t.Wait()
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	return nil
}

// finding is the interval at which an archive without named queues looks for failed queues.
const finding = 5 * time.Second

// find passes functions to start that empty the named failed queues, or all queues *.failed when they appear, until ctx is canceled.
func (l *link) find(ctx context.Context, start func(run func(context.Context) error)) {
	cfg := l.a.cfg
	known := cfg.queues()
	named := len(known) > 0
	found := func(queues []string) {
		start(func(ctx context.Context) error { return l.ingest(ctx, ingest.Config{Queues: queues}) })
	}
	if named {
		found(slices.Clone(known))
	}
	if cfg.Discover {
		l.discover(ctx, known, start)
		return
	}
	if named {
		return
	}
	l.watch(ctx, "cannot list the failed queues", func() error {
		queues, err := cfg.api().Queues(ctx)
		var more []string
		for _, q := range queues {
			if strings.HasSuffix(q.Name, topology.FailedQueue("")) && !slices.Contains(known, q.Name) {
				more = append(more, q.Name)
			}
		}
		if len(more) > 0 {
			slices.Sort(more)
			known = append(known, more...)
			found(more)
		}
		return err
	})
}

// watch calls look at intervals until ctx is canceled. It logs each error once.
func (l *link) watch(ctx context.Context, failure string, look func() error) {
	for last := ""; ; {
		err := look()
		switch {
		case err == nil:
			last = ""
		case ctx.Err() == nil && err.Error() != last:
			last = err.Error()
			l.a.cfg.Logger.Warn(failure, "error", err, "next_try", finding)
		}
		if retry.Sleep(ctx, finding) != nil {
			return
		}
	}
}

// ingest moves messages from queues into the archive until ctx is canceled.
func (l *link) ingest(ctx context.Context, cfg ingest.Config) error {
	cfg.Origin, cfg.Logger = l.a.cfg.origin(), l.a.cfg.Logger
	in, err := ingest.New(l.client, l.store, cfg)
	if err != nil {
		return err
	}
	l.a.mu.Lock()
	l.a.emptied = append(l.a.emptied, cfg.Queues...)
	l.a.ingests = append(l.a.ingests, in)
	l.a.mu.Unlock()
	l.a.cfg.Logger.Info("archiving", "queues", cfg.Queues, "archive", l.name)
	err = in.Run(ctx)
	l.a.mu.Lock()
	l.a.ingests = slices.DeleteFunc(l.a.ingests, func(other *ingest.Ingest) bool { return other == in })
	l.a.mu.Unlock()
	return err
}

// accounts returns the accounts of the ledger.
func (a *Archive) accounts() []ledger.Account {
	if len(a.cfg.Workers) > 0 {
		return accounts(a.cfg.Workers)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return accountsOf(a.emptied)
}

// purging is the interval at which the archive removes messages that exceed their retention.
const purging = time.Hour

// purge removes messages that exceed their retention, until ctx is canceled.
func (l *link) purge(ctx context.Context) {
	for {
		if _, err := l.store.Purge(ctx, "policy:retention"); err != nil && ctx.Err() == nil {
			l.a.cfg.Logger.Error("cannot remove messages that exceed the retention", "error", err, "next_try", purging)
		}
		if retry.Sleep(ctx, purging) != nil {
			return
		}
	}
}

// record records the history until ctx is canceled. Other processes with the same archive can record it at the same time.
func (l *link) record(ctx context.Context) {
	l.past.Run(ctx, history.Sources{Archive: l.store, Listening: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, history.Every/2)
		defer cancel()
		return l.client.Healthy(ctx)
	}})
}

// lastTimeout is the longest wait for the last statuses of stopped workers.
const lastTimeout = time.Second

// awaitLast returns when the last statuses of the workers of this process have arrived, or after lastTimeout. The workers
// stop before the archive, and the broker delivers these statuses a moment later.
func awaitLast(list *fleet.List) {
	host, _ := os.Hostname() // the statuses contain the same host name
	own := func(w fleet.Worker) bool { return w.PID == os.Getpid() && w.Host == host }
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(lastTimeout); slices.ContainsFunc(list.Workers(), own) && time.Now().Before(end); {
		<-poll.C
	}
}

// Times of watch.
const (
	watching     = 2 * time.Second
	watchTimeout = 3 * time.Second
)

// watch notifies the webhooks when the archive or the ledger becomes unavailable, until ctx is canceled.
func (a *Archive) watch(ctx context.Context) {
	broken := map[string]bool{}
	for retry.Sleep(ctx, watching) == nil {
		for what, healthy := range map[string]func(context.Context) error{"archive": a.Healthy, "ledger": a.LedgerHealthy} {
			limited, cancel := context.WithTimeout(ctx, watchTimeout)
			err := healthy(limited)
			cancel()
			if errors.Is(err, ErrNotOpen) {
				err = nil
			}
			if err != nil && !broken[what] && ctx.Err() == nil {
				a.notifier.Report(notification.StoreUnavailable, "store/"+what, "The "+what+" is unavailable", a.phase.Load().name+": "+strings.Join(strings.Fields(err.Error()), " "))
			}
			broken[what] = err != nil
		}
	}
}
