package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// ErrNotOpen is the health of an archive or a ledger that is not open yet. The log contains the reason.
var ErrNotOpen = errors.New("not open yet (see the log)")

// Archive stores, shows and replays failed messages. All methods are safe for concurrent use.
type Archive struct {
	cfg      Config
	book     *ledger.Book           // counts the events of Observer; runs if Observer was called
	notifier *notification.Notifier // nil: no webhooks
	phase    atomic.Pointer[phase]

	connected chan struct{} // closed by connect
	announce  func()        // closes connected

	mu       sync.Mutex
	observed bool            // Observer was called
	counting bool            // the book runs
	tokens   []console.Token // of the next console
	client   *reprise.Client // nil: Connect was not called yet
	workers  []Worker
	emptied  []string // failed queues
	ingests  []*ingest.Ingest
	doubtful []console.DoubtfulQueue // that Config.Discover does not empty
}

// phase contains the parts of an Archive that exist. Open or Run adds the first group, and Run the second group. A phase
// does not change, so that a request sees all or none of the parts of a group.
type phase struct {
	name  string
	store *store.Archive
	past  *history.History
	books *ledger.Ledger   // nil: none
	web   *console.Console // nil: none

	link *link // to the broker

	ended error // why Run has stopped
}

// Open opens the archive in cfg.DB, unless cfg.Later is set. The archive does nothing before Run, except that the Handler
// serves the console.
func Open(ctx context.Context, cfg Config) (*Archive, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	a := &Archive{cfg: cfg, connected: make(chan struct{})}
	a.announce = sync.OnceFunc(func() { close(a.connected) })
	a.phase.Store(&phase{name: cmp.Or(cfg.Name, string(cfg.Dialect))})
	var err error
	if a.tokens, err = cfg.Console.tokens(); err != nil {
		return nil, err
	}
	a.book = ledger.NewBook(cfg.DB, ledger.BookConfig{Dialect: cfg.Dialect.kit(), Every: cfg.Sample / 3, Logger: cfg.Logger})
	if len(cfg.Notify.Webhooks) > 0 {
		n := cfg.notifications()
		n.Read = a.read
		a.notifier = notification.New(n)
	}
	if !cfg.Later {
		err = a.open(ctx, func(what, name string, open func() error) error {
			if err := open(); err != nil {
				return fmt.Errorf("archive: cannot use the %s %s: %w", what, name, err)
			}
			return nil
		})
	}
	return a, err
}

// open opens the parts in the database. The argument reach calls a function, once or until the database is reachable.
func (a *Archive) open(ctx context.Context, reach func(what, name string, open func() error) error) error {
	p := *a.phase.Load()
	err := reach("archive", p.name, func() (err error) {
		if a.cfg.Dialect == SQLite {
			path, err := sqlkit.FilePath(ctx, a.cfg.DB)
			if err == nil && path != "" {
				p.name = cmp.Or(a.cfg.Name, path)
				err = sqlkit.CheckFile(ctx, a.cfg.DB, path)
			}
			if err != nil {
				return err
			}
		}
		p.store, err = store.Open(ctx, a.cfg.DB, a.cfg.store())
		return err
	})
	if err != nil {
		return err
	}
	err = reach("history", p.name, func() (err error) {
		p.past, err = history.Open(ctx, a.cfg.DB, history.Config{Dialect: a.cfg.Dialect.kit(), Logger: a.cfg.Logger})
		return err
	})
	if err == nil && !a.cfg.ConsoleElsewhere && a.cfg.Management != nil {
		err = reach("ledger", p.name, func() (err error) {
			p.books, err = ledger.Open(ctx, a.cfg.DB, ledger.Config{Dialect: a.cfg.Dialect.kit(), Every: a.cfg.Sample, Logger: a.cfg.Logger})
			return err
		})
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.cfg.ConsoleElsewhere {
		c := a.cfg.console(a.tokens)
		c.Archive, c.Ledger, c.History, c.Workers = p.store, p.books, p.past, a.shown
		c.Replayer, c.Fleet, c.Rescheduler, c.Broker, c.Doubtful = (*late)(a), (*late)(a), (*late)(a), (*late)(a).broker, (*late)(a).doubts
		if p.web, err = console.New(c); err != nil {
			return err
		}
	}
	a.phase.Store(&p)
	return nil
}

// Connect passes the connection to the broker and the workers of this program, which the console shows with their states.
// Run waits for it. The caller closes the client after Run has returned. A further
// call replaces the workers that the console shows.
func (a *Archive) Connect(client *reprise.Client, workers ...Worker) {
	a.mu.Lock()
	a.client, a.workers = client, workers
	a.mu.Unlock()
	a.announce()
}

// shown returns the workers of this program for the console.
func (a *Archive) shown() (all []console.Worker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		shown := console.Worker{Queue: w.Config.Queue, State: func() error { return w.Status().Err }, Config: &w.Config}
		if b, ok := w.Config.Breaker.(*breaker.Breaker); ok {
			shown.Breaker = func() string { return string(b.State()) }
		}
		all = append(all, shown)
	}
	return all
}

// SetTokens replaces Console.Tokens. The sessions of removed tokens end. SetTokens returns an error, and changes nothing,
// if a token is invalid or if one of the lists is empty: a console has tokens always or never.
func (a *Archive) SetTokens(tokens []Token) error {
	all, err := parseTokens(tokens)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if web := a.phase.Load().web; web != nil {
		return web.SetTokens(all)
	}
	if len(all) == 0 || len(a.tokens) == 0 {
		return errors.New("archive: SetTokens: the old and the new list of tokens must not be empty")
	}
	c := a.cfg.console(all)
	c.Archive = &store.Archive{}
	if err := c.Validate(); err != nil {
		return err
	}
	a.tokens = all
	return nil
}

// Handler serves the pages of the console and, under /api/v1, the HTTP API, which /api/v1/openapi.json describes.
func (a *Archive) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := a.phase.Load(); {
		case a.cfg.ConsoleElsewhere:
			http.NotFound(w, r)
		case p.web == nil:
			a.unopened(w, r)
		default:
			p.web.ServeHTTP(w, r)
		}
	})
}

// unopened responds to requests until the archive is open.
func (a *Archive) unopened(w http.ResponseWriter, r *http.Request) {
	const text, advice = "the archive is not open yet", "see the log of the console for the cause, and try again"
	w.Header().Set("Retry-After", "2")
	if !strings.HasPrefix(r.URL.Path, strings.TrimSuffix(a.cfg.Console.Prefix, "/")+"/api/") {
		http.Error(w, text+": "+advice, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(api.Error{Text: text, Advice: advice}) // the client may have disconnected
}

// Healthy returns an error if the database is not usable, if a failed queue cannot be emptied, or if Run has failed. It
// returns ErrNotOpen if the archive is not open yet. ctx should have a deadline.
func (a *Archive) Healthy(ctx context.Context) error {
	p := a.phase.Load()
	switch {
	case p.ended != nil:
		return p.ended
	case p.store == nil:
		return ErrNotOpen
	}
	if err := p.store.Healthy(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, in := range a.ingests {
		if err := in.Healthy(); err != nil {
			return err
		}
	}
	return nil
}

// LedgerHealthy returns an error if the ledger cannot be read, or if the events of Observer cannot be written to it.
// Without a ledger, it returns nil.
func (a *Archive) LedgerHealthy(ctx context.Context) error {
	a.mu.Lock()
	counting := a.counting
	a.mu.Unlock()
	if counting {
		err := a.book.Healthy(ctx)
		if errors.Is(err, ledger.ErrNotOpen) {
			return ErrNotOpen
		}
		return err
	}
	if l := a.phase.Load().books; l != nil {
		return l.Healthy(ctx)
	}
	return nil
}

// Observer returns an observer for [reprise.Config], if this program runs workers. It counts their results for the
// ledger, and reports open circuit breakers and late handlers to the webhooks. Call Observer before Run, and cancel Run
// after the workers have stopped.
func (a *Archive) Observer() reprise.Observer {
	a.mu.Lock()
	a.observed = true
	a.mu.Unlock()
	return reprise.ObserverFunc(func(e reprise.Event) {
		a.book.Observe(e)
		if a.notifier != nil {
			a.report(e)
		}
	})
}

// report reports an event to the webhooks.
func (a *Archive) report(e reprise.Event) {
	switch e.Kind {
	case reprise.EventTimeoutNear:
		a.notifier.Report(notification.TimeoutNear, "queue/"+e.Queue, "A handler of "+e.Queue+" takes nearly as long as its consumer timeout",
			"held for "+e.Took.Round(time.Second).String())
	case reprise.EventPaused:
		for _, w := range a.shown() {
			if w.Queue == e.Queue && w.Breaker != nil && w.Breaker() == string(breaker.Open) {
				a.notifier.Report(notification.BreakerOpen, "queue/"+e.Queue, "The circuit breaker of "+e.Queue+" is open", "")
			}
		}
	}
}

// read returns the current state for notifications.
func (a *Archive) read(ctx context.Context) (*notification.Reading, error) {
	p := a.phase.Load()
	if p.store == nil {
		return nil, ErrNotOpen
	}
	return notification.Read(ctx, p.store, p.books)
}
