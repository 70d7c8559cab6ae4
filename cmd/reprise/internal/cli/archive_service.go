package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/topology"
)

// archiveService archives, shows and replays failed messages:
//
//	failed queues ─► ingest ─► archive ◄─► console ◄─► browsers, reprise failed
//	work queues ◄── replayer ◄────┘
type archiveService struct {
	archiveServiceConfig
	log *slog.Logger
	db  *archiveDB
	web *webServer

	localURL string // of the console

	served   atomic.Pointer[console.Console] // nil: the archive is not open yet
	replayer atomic.Pointer[failed.Replayer] // nil: not connected yet
	fleet    lateFleet
	waiting  lateRescheduler

	embedded bool                  // the broker is in this process
	book     func(context.Context) // records the activity of workers for the ledger; nil: no workers

	client       atomic.Pointer[reprise.Client]              // nil: not connected yet
	opened       atomic.Pointer[failed.Archive]              // nil: not open yet
	ended        atomic.Pointer[error]                       // why archiving has stopped
	ledgerHealth atomic.Pointer[func(context.Context) error] // health of the ledger; nil: none, or not open yet

	ledger   atomic.Pointer[ledger.Ledger]         // nil: none, or not open yet
	notifier atomic.Pointer[notification.Notifier] // nil: none, or not open yet
	notified func(result string)                   // counts attempts to send notifications

	mu                 sync.Mutex
	discoveredAccounts []ledger.Account // accounts of discovered failed queues
	ingests            []*failed.Ingest
}

// parts returns the databases for health checks.
func (d *archiveService) parts() []dependency {
	if d == nil {
		return nil
	}
	return []dependency{
		{"archive", d.db.name, d.archiveHealthy, d.reportStore("archive")},
		{"ledger", d.db.name, d.ledgerHealthy, d.reportStore("ledger")},
	}
}

// errNotOpen is the result of a health check of a store that is not open yet, for example because the broker is
// unreachable.
var errNotOpen = errors.New("not open yet (see the log)")

func (d *archiveService) archiveHealthy(ctx context.Context) error {
	if ended := d.ended.Load(); ended != nil {
		return *ended
	}
	archive := d.opened.Load()
	if archive == nil {
		return errNotOpen
	}
	if err := archive.Healthy(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, in := range d.ingests {
		if err := in.Healthy(); err != nil {
			return err
		}
	}
	return nil
}

func (d *archiveService) ledgerHealthy(ctx context.Context) error {
	if healthy := d.ledgerHealth.Load(); healthy != nil {
		return (*healthy)(ctx)
	}
	return nil
}

// setLedgerHealth sets the health check of the ledger.
func (d *archiveService) setLedgerHealth(healthy func(context.Context) error) {
	d.ledgerHealth.Store(&healthy)
}

// archiveServiceConfig configures an archiveService.
type archiveServiceConfig struct {
	archive  string        // sqlite:PATH or postgres://…
	settings failed.Config // without Dialect and Logger
	queues   queueSource
	origin   func(*reprise.Message) string
	accounts []ledger.Account // accounts of workers; nil: accounts of the discovered failed queues
	marks    []topology.Marks // marks of workers; a replay omits these headers
	workers  []config.Worker  // destinations of replays

	listen  string // address of the console; "": no console and no replays
	flag    string // flag of the address, for errors: --listen
	console console.Config
	tokens  string         // file of the console's tokens; "": none
	url     string         // external URL of the console; "": listen
	notify  *config.Notify // nil: no notifications
}

// newArchiveService returns an archiveService. It does not connect to the database.
func newArchiveService(cfg archiveServiceConfig, log *slog.Logger) (*archiveService, error) {
	db, err := openArchiveDB(cfg.archive)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return &archiveService{archiveServiceConfig: cfg, log: log, db: db, web: &webServer{}}, nil
}

// check returns the configuration errors that can be detected before the service connects or listens.
func (c archiveServiceConfig) check() error {
	settings := c.settings
	settings.Dialect = failed.SQLite // any dialect is valid here
	errs := []error{settings.Validate()}
	if len(c.queues.named) > 0 {
		errs = append(errs, failed.IngestConfig{Queues: c.queues.named}.Validate())
	}
	errs = append(errs, failed.ReplayerConfig{Marks: c.marks}.Validate())
	if c.notify != nil {
		errs = append(errs, readAuthorities(c.notify))
	}
	if c.listen != "" {
		shown := c.console
		shown.Archive = &failed.Archive{} // opened later
		errs = append(errs, shown.Validate(), c.checkURL())
		if a, err := net.ResolveTCPAddr(network(c.listen), c.listen); err == nil {
			errs = append(errs, c.admit(a))
		}
	}
	return errors.Join(errs...)
}

// admit returns an error if a console without tokens is reachable from other machines.
func (c archiveServiceConfig) admit(a net.Addr) error {
	if len(c.console.Tokens) > 0 || loopback(a) {
		return nil
	}
	return usagef("%s: %s is reachable from other machines without a token: "+
		"create tokens (`reprise console token`), or listen on 127.0.0.1", c.flag, c.listen)
}

// serve starts to listen for the console, if one is configured. Until the archive is open, the response to each request
// is an error.
func (d *archiveService) serve() error {
	if d.listen == "" {
		return nil
	}
	l, err := listen(d.listen)
	if err != nil {
		return fmt.Errorf("%s: %w", d.flag, err)
	}
	if err := d.admit(l.Addr()); err != nil { // the host name may resolve to another address now
		_ = l.Close()
		return err
	}
	d.web = serveWeb("console", l, progressDeadlines(d), d.log)
	d.localURL = webURL(l.Addr()) + d.console.Prefix
	d.log.Info("console", "url", d.localURL)
	return nil
}

// ServeHTTP implements [http.Handler].
func (d *archiveService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := d.served.Load()
	if c == nil {
		d.unopened(w, r)
		return
	}
	c.ServeHTTP(w, r)
}

// unopened responds to requests until the archive is open.
func (d *archiveService) unopened(w http.ResponseWriter, r *http.Request) {
	const text, advice = "the archive is not open yet", "see the log of the console for the cause, and try again"
	w.Header().Set("Retry-After", "2")
	if !strings.HasPrefix(r.URL.Path, strings.TrimSuffix(d.console.Prefix, "/")+"/api/") {
		http.Error(w, text+": "+advice, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(api.Error{Text: text, Advice: advice}) // the client may have disconnected
}

// Wake implements [console.Replayer]. Without a connection, Wake does nothing, because the replayer looks for new
// replays when it starts.
func (d *archiveService) Wake() {
	if r := d.replayer.Load(); r != nil {
		r.Wake()
	}
}

// run runs the service until ctx is canceled or a part fails.
func (d *archiveService) run(ctx context.Context, connect func(context.Context) (*reprise.Client, error)) error {
	defer d.startNotifier(ctx)()
	archive, err := d.db.open(ctx, d.settings, d.log)
	if err != nil {
		return err
	}
	if n := d.notifier.Load(); n != nil {
		if first, err := notification.Read(ctx, archive, nil); err == nil { // otherwise, all groups in the first poll count as old
			n.Start(first)
		}
	}
	d.opened.Store(archive)
	past, err := d.openHistory(ctx)
	if err != nil {
		return err
	}
	var books *ledger.Ledger
	if d.listen != "" {
		if books, err = d.openLedger(ctx); err != nil {
			return err
		}
		d.ledger.Store(books)
		c := d.console
		c.Archive, c.Replayer, c.Ledger, c.Logger, c.Fleet, c.History = archive, d, books, d.log, &d.fleet, past
		c.Rescheduler = &d.waiting
		c.Routing, c.Broker = routingOf(d.workers, c.Management), d.client.Load
		served, err := console.New(c)
		if err != nil {
			return err
		}
		d.served.Store(served)
		defer d.startTokens(ctx, served)()
	}
	client, err := connect(ctx)
	if err != nil {
		return err
	}
	d.client.Store(client)
	parts, running := errgroup.WithContext(ctx)
	start := func(what string, run func(context.Context) error) {
		parts.Go(func() error {
			if err := run(running); err != nil && running.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	if d.listen != "" {
		replayer, err := failed.NewReplayer(client, archive, failed.ReplayerConfig{Routing: routingOf(d.workers, d.console.Management), Marks: d.marks, Logger: d.log})
		if err != nil {
			return err
		}
		d.replayer.Store(replayer)
		start("replays", replayer.Run)
		rescheduler, err := failed.NewRescheduler(client, archive, failed.ReschedulerConfig{Logger: d.log})
		if err != nil {
			return err
		}
		d.waiting.Store(rescheduler)
		start("retries", rescheduler.Run)
	}
	list := fleet.New(client)
	list.Observe(past.Observe)
	d.fleet.list.Store(list)
	listening, hangUp := context.WithCancel(context.WithoutCancel(running))
	defer hangUp()
	context.AfterFunc(running, func() {
		defer hangUp()
		awaitLast(list)
	})
	start("workers", func(context.Context) error {
		if err := list.Run(listening); err != nil { // the console shows the error
			d.log.Info("cannot list workers", "error", err)
		}
		return nil
	})
	start("history", func(context.Context) error { record(listening, past, archive, client); return nil })
	if books != nil {
		start("ledger", func(ctx context.Context) error { d.audit(ctx, books, archive); return nil })
	}
	if d.settings.Expires() {
		start("retention", func(ctx context.Context) error { purge(ctx, archive, d.log); return nil })
	}
	start("failed queues", func(ctx context.Context) error {
		return d.queues.each(ctx, d.log, func(queues []string) {
			d.addAccounts(queues)
			start("failed queues", func(ctx context.Context) error {
				return d.ingest(ctx, archive, client, queues)
			})
		})
	})
	parts.Go(func() error {
		select {
		case err := <-d.web.failed:
			return err
		case <-running.Done():
			return nil
		}
	})
	return parts.Wait()
}

// ingest moves messages from queues into the archive until ctx is canceled.
func (d *archiveService) ingest(ctx context.Context, a *failed.Archive, c *reprise.Client, queues []string) error {
	in, err := failed.NewIngest(c, a, failed.IngestConfig{Queues: queues, Origin: d.origin, Logger: d.log})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.ingests = append(d.ingests, in)
	d.mu.Unlock()
	d.log.Info("archiving", "queues", queues, "archive", d.db.name)
	return in.Run(ctx)
}

// close stops the console and closes the database.
func (d *archiveService) close() {
	d.web.stop()
	_ = d.db.Close() // all changes are committed
}
