package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
)

// archiveService runs an archive, and serves its console.
type archiveService struct {
	archiveServiceConfig
	*archive.Archive // nil until open

	log *slog.Logger
	db  *database
	web *webServer

	listener net.Listener  // of the console; nil: none
	localURL string        // of the console
	figures  *pipeListener // for the management API of the embedded broker; nil: none
	notified func(string)  // counts attempts to send notifications
}

// archiveServiceConfig configures an archiveService.
type archiveServiceConfig struct {
	archive archive.Config // without DB, Dialect, Name and Logger
	store   string         // sqlite:PATH or postgres://…

	listen string // address of the console; "": no console
	flag   string // flag of the address, for errors: --listen
	tokens string // file of the console's tokens; "": none
}

// newArchiveService returns an archiveService, and the configuration errors that can be detected before the service
// connects or listens.
func newArchiveService(cfg archiveServiceConfig, log *slog.Logger) (*archiveService, error) {
	d := &archiveService{archiveServiceConfig: cfg, log: log, web: &webServer{}}
	var err error
	if d.db, err = openArchiveDB(cfg.store); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	d.archive.DB, d.archive.Name, d.archive.Dialect = d.db.DB, d.db.name, archive.SQLite
	if d.db.postgres {
		d.archive.Dialect = archive.PostgreSQL
	}
	d.archive.Notify.Sent = func(result string) { d.notified(result) }
	d.archive.Later, d.archive.Logger, d.archive.ConsoleElsewhere = true, log, d.listen == ""
	return d, nil
}

// useEmbedded prepares the service for the embedded broker of this process; see serveFigures.
func (d *archiveService) useEmbedded() {
	d.archive.Sample = embeddedSample
	if d.listen != "" {
		d.figures = newPipeListener()
		d.archive.Management = &archive.Management{URL: "http://broker", User: guest, Password: guest, Client: d.figures.client()}
	}
}

// check returns the configuration errors that can be detected before the service connects or listens.
func (d *archiveService) check() error {
	err := d.archive.Validate()
	if d.listen == "" {
		return err
	}
	if a, resolving := net.ResolveTCPAddr(network(d.listen), d.listen); resolving == nil {
		err = errors.Join(err, d.admit(a))
	}
	return err
}

// admit returns an error if a console without tokens is reachable from other machines.
func (d *archiveService) admit(a net.Addr) error {
	if len(d.archive.Console.Tokens) > 0 || loopback(a) {
		return nil
	}
	return usagef("%s: %s is reachable from other machines without a token: "+
		"create tokens (`reprise console token`), or listen on 127.0.0.1", d.flag, d.listen)
}

// open starts to listen for the console, if one is configured, and creates the archive, which opens its database later.
func (d *archiveService) open() (err error) {
	if d.listen != "" {
		if d.listener, err = listen(d.listen); err != nil {
			return fmt.Errorf("%s: %w", d.flag, err)
		}
		if err := d.admit(d.listener.Addr()); err != nil { // the host name may resolve to another address now
			return err
		}
		d.localURL = webURL(d.listener.Addr()) + d.archive.Console.Prefix
		d.archive.Console.URL = cmp.Or(d.archive.Console.URL, d.localURL)
	}
	d.Archive, err = archive.Open(context.Background(), d.archive)
	return err
}

// serve serves the console, if one is configured. The argument notified counts attempts to send notifications.
func (d *archiveService) serve(notified func(result string)) {
	d.notified = notified
	if d.listener == nil {
		return
	}
	d.web = serveWeb("console", d.listener, progressDeadlines(d.Handler()), d.log)
	d.log.Info("console", "url", d.localURL)
}

// parts returns the databases for health checks.
func (d *archiveService) parts() []dependency {
	if d == nil {
		return nil
	}
	return []dependency{{kind: "archive", name: d.db.name, healthy: d.Healthy}, {kind: "ledger", name: d.db.name, healthy: d.LedgerHealthy}}
}

// run runs the archive until ctx is canceled or a part fails. It calls failed if the server of the console stops.
func (d *archiveService) run(ctx context.Context, failed func(error)) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		select {
		case err := <-d.web.failed:
			failed(err)
		case <-ctx.Done():
		}
	})
	if d.tokens != "" {
		running.Go(func() { d.watchTokens(ctx) })
	}
	d.db.private()
	return d.Archive.Run(ctx)
}

// linkWarning describes notifications whose links work only on this machine, or on no machine.
func (d *archiveService) linkWarning() string {
	switch {
	case d == nil || len(d.archive.Notify.Webhooks) == 0 || d.archive.Console.URL != "":
		return ""
	case d.listen == "":
		return "notifications have no links without a console (set console, and its key url)"
	}
	return fmt.Sprintf("links in notifications begin with http://%s, the address of the console's listener (set console.url to the address for browsers)", d.listen)
}

// notifyOf converts the configuration of notifications, and reads the files of the webhooks' authorities.
func notifyOf(n *config.Notify) (archive.Notify, error) {
	if n == nil {
		return archive.Notify{}, nil
	}
	to := archive.Notify{Gather: n.Gather, Cooldown: n.Cooldown, Growth: n.Growth}
	if err := n.ReadAuthorities(); err != nil {
		return to, err
	}
	for _, w := range n.Webhooks {
		hook := archive.Webhook{URL: w.URL, Format: string(w.Format), Secret: w.Secret, Authorities: w.Authorities}
		for _, kind := range w.Events {
			hook.Events = append(hook.Events, string(kind))
		}
		to.Webhooks = append(to.Webhooks, hook)
	}
	return to, nil
}

// observe returns an observer that also passes events to the archive.
func (d *archiveService) observe(next reprise.Observer) reprise.Observer {
	if d == nil {
		return next
	}
	own := d.Observer()
	return reprise.ObserverFunc(func(e reprise.Event) {
		own.Observe(e)
		next.Observe(e)
	})
}

// close stops the console and closes the database.
func (d *archiveService) close() {
	d.web.stop()
	if d.listener != nil {
		_ = d.listener.Close() // usually closed by the server
	}
	_ = d.db.Close() // all changes are committed
}

// runner returns a runner that never fails, so that the workers continue if the service fails. Failed messages then stay
// in their queues.
func (d *archiveService) runner(client *reprise.Client, workers ...archive.Worker) reprise.Runner {
	if d == nil {
		return reprise.RunnerFunc(func(context.Context) error { return nil })
	}
	d.Connect(client, workers...)
	return reprise.RunnerFunc(func(ctx context.Context) error {
		_ = d.run(ctx, func(err error) { d.log.Error("server of the console stopped", "error", err) }) // the archive logs errors
		return nil
	})
}

// serveFigures serves the management API of the embedded broker only to this process. The console uses the same API for
// all brokers.
func (d *archiveService) serveFigures(management http.Handler) *webServer {
	if d == nil || d.figures == nil {
		return &webServer{}
	}
	return serveWeb("figures of the broker", d.figures, management, d.log)
}

// inspector returns a function that reads queues from the management API, or nil if the console does not know the API.
func (d *archiveService) inspector() func(context.Context, string) (topology.Queue, error) {
	if d == nil || d.archive.Management == nil {
		return nil
	}
	return d.archive.Management.Queue
}

// embeddedSample is the interval of the ledger's samples with the embedded broker, which reports current figures.
const embeddedSample = 3 * time.Second
