// Package archiving runs an archive of failed messages with its console, for reprise console and for reprise up.
package archiving

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
	"github.com/reprisemq/reprise/cmd/reprise/internal/database"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/topology"
)

// Service runs an archive, and serves its console.
type Service struct {
	Config
	*archive.Archive // nil until open

	log *slog.Logger
	db  *database.DB
	web *serve.WebServer

	listener net.Listener        // of the console; nil: none
	LocalURL string              // of the console
	figures  *serve.PipeListener // for the management API of the embedded broker; nil: none
	notified func(string)        // counts attempts to send notifications
}

// Config configures a Service.
type Config struct {
	Settings archive.Config // without DB, Dialect, Name and Logger
	Store    string         // sqlite:PATH or postgres://…

	Listen string // address of the console; "": no console
	Flag   string // flag of the address, for errors: --listen
	Tokens string // file of the console's tokens; "": none

	Outbox *Outbox // which the service opens and closes; nil: none
}

// New returns a Service, and the configuration errors that can be detected before it connects or listens.
func New(cfg Config, log *slog.Logger) (*Service, error) {
	d := &Service{Config: cfg, log: log, web: &serve.WebServer{}}
	var err error
	if d.db, err = database.OpenArchive(cfg.Store); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	d.Settings.DB, d.Settings.Name, d.Settings.Dialect = d.db.DB, d.db.Name, archive.SQLite
	if d.db.Dialect == sqlkit.PostgreSQL {
		d.Settings.Dialect = archive.PostgreSQL
	}
	d.Settings.Notify.Sent = func(result string) { d.notified(result) }
	if d.Outbox != nil {
		d.Settings.Outbox = d.Outbox.Box
	}
	d.Settings.Later, d.Settings.Logger, d.Settings.ConsoleElsewhere = true, log, d.Listen == ""
	return d, nil
}

// UseEmbedded prepares the service for the embedded broker of this process, where guest has this password; see
// ServeFigures.
func (d *Service) UseEmbedded(password string) {
	d.Settings.Sample = embeddedSample
	if d.Listen != "" {
		d.figures = serve.NewPipeListener()
		d.Settings.Management = &archive.Management{URL: "http://broker", User: dial.Guest, Password: password, Client: d.figures.Client()}
	}
}

// Check returns the configuration errors that can be detected before the service connects or listens.
func (d *Service) Check() error {
	err := d.Settings.Validate()
	if d.Listen == "" {
		return err
	}
	if a, resolving := net.ResolveTCPAddr(dial.Network(d.Listen), d.Listen); resolving == nil {
		err = errors.Join(err, d.admit(a))
	}
	return err
}

// Writable returns an error if the SQLite file of the archive cannot be written. Call it before the archive is open.
func (d *Service) Writable() error { return d.db.Writable() }

// admit returns an error if a console without tokens is reachable from other machines.
func (d *Service) admit(a net.Addr) error {
	if len(d.Settings.Console.Tokens) > 0 || serve.Loopback(a) {
		return nil
	}
	return exit.Usagef("%s: %s is reachable from other machines without a token: "+
		"create tokens (`reprise console token`), or listen on 127.0.0.1", d.Flag, d.Listen)
}

// Open starts to listen for the console, if one is configured, and creates the archive, which opens its database later.
func (d *Service) Open() (err error) {
	if d.Listen != "" {
		if d.listener, err = serve.Listen(d.Listen); err != nil {
			return fmt.Errorf("%s: %w", d.Flag, err)
		}
		if err := d.admit(d.listener.Addr()); err != nil { // the host name may resolve to another address now
			return err
		}
		d.LocalURL = serve.WebURL(d.listener.Addr()) + d.Settings.Console.Prefix
		d.Settings.Console.URL = cmp.Or(d.Settings.Console.URL, d.LocalURL)
	}
	d.Archive, err = archive.Open(context.Background(), d.Settings)
	return err
}

// Serve serves the console, if one is configured. The argument notified counts attempts to send notifications.
func (d *Service) Serve(notified func(result string)) {
	d.notified = notified
	if d.listener == nil {
		return
	}
	d.web = serve.Web("console", d.listener, serve.ProgressDeadlines(d.Handler()), d.log)
	d.log.Info("console", "url", d.LocalURL)
}

// Stores returns the databases for health checks.
func (d *Service) Stores() []health.Store {
	if d == nil {
		return nil
	}
	return append([]health.Store{{Kind: "archive", Name: d.db.Name, Healthy: d.Healthy}, {Kind: "ledger", Name: d.db.Name, Healthy: d.LedgerHealthy}}, d.Outbox.Stores()...)
}

// Run runs the archive until ctx is canceled or a part fails. It calls failed if the server of the console stops.
func (d *Service) Run(ctx context.Context, failed func(error)) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() {
		select {
		case err := <-d.web.Failed:
			failed(err)
		case <-ctx.Done():
		}
	})
	if d.Tokens != "" {
		running.Go(func() { d.watchTokens(ctx) })
	}
	if d.Outbox != nil {
		running.Go(func() {
			if opened, err := d.Outbox.Await(ctx, d.log); err == nil {
				d.Outbox.Show(opened)
			}
		})
	}
	d.db.CreateFile()
	return d.Archive.Run(ctx)
}

// LinkWarning describes notifications whose links work only on this machine, or on no machine.
func (d *Service) LinkWarning() string {
	switch {
	case d == nil || len(d.Settings.Notify.Webhooks) == 0 || d.Settings.Console.URL != "":
		return ""
	case d.Listen == "":
		return "notifications have no links without a console (set console, and its key url)"
	}
	return fmt.Sprintf("links in notifications begin with http://%s, the address of the console's listener (set console.url to the address for browsers)", d.Listen)
}

// Notify returns the configuration of notifications, after it has read the files of the webhooks' authorities.
func Notify(n *config.Notify) (archive.Notify, error) {
	if n == nil {
		return archive.Notify{}, nil
	}
	err := n.ReadAuthorities()
	return n.Notify, err
}

// Observe returns an observer that also passes events to the archive.
func (d *Service) Observe(next reprise.Observer) reprise.Observer {
	if d == nil {
		return next
	}
	own := d.Observer()
	return reprise.ObserverFunc(func(e reprise.Event) {
		own.Observe(e)
		next.Observe(e)
	})
}

// Close stops the console and closes the database.
func (d *Service) Close() {
	d.web.Stop()
	if d.listener != nil {
		_ = d.listener.Close() // usually closed by the server
	}
	_ = d.db.Close() // all changes are committed
	d.Outbox.Close()
}

// Runner returns a runner that never fails, so that the workers continue if the service fails. Failed messages then stay
// in their queues.
func (d *Service) Runner() reprise.Runner {
	if d == nil {
		return reprise.RunnerFunc(func(context.Context) error { return nil })
	}
	return reprise.RunnerFunc(func(ctx context.Context) error {
		_ = d.Run(ctx, func(err error) { d.log.Error("server of the console stopped", "error", err) }) // the archive logs errors
		return nil
	})
}

// Show passes the connection to the broker and the running workers to the archive.
func (d *Service) Show(client *reprise.Client, workers ...archive.Worker) {
	if d != nil {
		d.Connect(client, workers...)
	}
}

// ServeFigures serves the management API of the embedded broker only to this process. The console uses the same API for
// all brokers.
func (d *Service) ServeFigures(management http.Handler) *serve.WebServer {
	if d == nil || d.figures == nil {
		return &serve.WebServer{}
	}
	return serve.Web("figures of the broker", d.figures, management, d.log)
}

// Inspector returns a function that reads queues from the management API, or nil if the console does not know the API.
func (d *Service) Inspector() func(context.Context, string) (topology.Queue, error) {
	if d == nil || d.Settings.Management == nil {
		return nil
	}
	return d.Settings.Management.Queue
}

// Queues returns the queues of the broker, or none if the console does not know the management API.
func (d *Service) Queues(ctx context.Context) ([]mgmtapi.Queue, error) {
	if d == nil || d.Settings.Management == nil {
		return nil, nil
	}
	return mgmtapi.API(*d.Settings.Management).Queues(ctx)
}

// Topology returns the exchanges and bindings of the broker, or nil if the management API is not configured or does not describe them.
func (d *Service) Topology(ctx context.Context) *topology.Topology {
	if d == nil || d.Settings.Management == nil {
		return nil
	}
	t, err := mgmtapi.API(*d.Settings.Management).Topology(ctx)
	if err != nil {
		return nil
	}
	return &t
}

// embeddedSample is the interval of the ledger's samples with the embedded broker, which reports current figures.
const embeddedSample = 3 * time.Second
