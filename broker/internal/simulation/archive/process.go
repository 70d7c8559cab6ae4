package archive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// Config is the configuration of a process. It corresponds to the command line and the configuration file.
type Config struct {
	Name string
	URL  string
	Dial Dial

	Heartbeat time.Duration

	Queues    []string                       // failed queues that the process moves to the archive
	Origin    func(*reprise.Delivery) string // passed to ingest.Config
	Routing   replay.Routing
	Retention time.Duration
	Tokens    []console.Token
	Lease     time.Duration // lease of queues and replays; 0: the defaults
	Poll      time.Duration // poll interval of replays; 0: the default

	Broker   ledger.Broker // nil: no ledger
	Accounts []ledger.Account

	// Work runs the workers of p until ctx is done. If it is nil, the process has no workers.
	Work func(ctx context.Context, p *Process, observer reprise.Observer) error

	// Published is called for each message that the process publishes. It must be safe for concurrent use.
	Published func(p *Process, m Publish)

	Logger *slog.Logger
}

// Process runs the parts of `reprise up` or `reprise console`: workers, an Ingest, a Replayer, the console and the ledger.
// They share one file and one broker. A process can be killed at any moment.
type Process struct {
	Config
	Database *Database

	pool    *sql.DB
	others  []*Database // additional databases that the process has opened
	network *network
	killed  atomic.Bool
	stop    context.CancelCauseFunc
	ended   chan struct{}
	err     error // why the process exited; valid after ended is closed

	archive atomic.Pointer[store.Archive] // nil: not open yet
	console atomic.Pointer[console.Console]
	ingest  atomic.Pointer[ingest.Ingest]
	sender  atomic.Pointer[replay.Replayer]
	ledger  atomic.Pointer[ledger.Ledger]
	cut     atomic.Int64 // number of times that its connections were cut

	mu       sync.Mutex // guards others and the fields below
	closed   bool       // the process no longer accepts requests
	handling sync.WaitGroup
}

// Start starts a process with the database in a file.
func Start(cfg Config, file string) *Process {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Process{Config: cfg, Database: NewDatabase(file), ended: make(chan struct{})}
	p.network = &network{dial: cfg.Dial, conns: make(map[*wire]bool), published: func(m Publish) {
		if cfg.Published != nil {
			cfg.Published(p, m)
		}
	}}
	p.pool = sql.OpenDB(p.Database)
	p.pool.SetMaxOpenConns(16) // the same value as in the command
	ctx, stop := context.WithCancelCause(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		p.err = p.run(ctx)
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.handling.Wait()
		_ = p.pool.Close()
	}()
	return p
}

// run runs the process until ctx is done.
func (p *Process) run(ctx context.Context) error {
	archive, err := await(ctx, func() (*store.Archive, error) {
		return store.Open(ctx, p.pool, store.Config{Dialect: store.SQLite, Retention: p.Retention, Logger: p.Logger})
	})
	if err != nil {
		return err
	}
	p.archive.Store(archive)
	var books *ledger.Ledger
	var book *ledger.Book
	if p.Broker != nil {
		books, err = await(ctx, func() (*ledger.Ledger, error) {
			return ledger.Open(ctx, p.pool, ledger.Config{Dialect: store.SQLite, Logger: p.Logger})
		})
		if err != nil {
			return err
		}
		p.ledger.Store(books)
	}
	if p.Work != nil {
		book = ledger.NewBook(p.pool, ledger.BookConfig{Dialect: store.SQLite, Process: p.Name, Logger: p.Logger})
	}
	served, err := console.New(console.Config{
		Archive: archive, Replayer: wake{p}, Routing: p.Routing, Ledger: books, Tokens: p.Tokens, Logger: p.Logger,
	})
	if err != nil {
		return err
	}
	p.console.Store(served)
	client, err := reprise.Dial(ctx, p.URL, p.Client(p.Name))
	if err != nil {
		return err
	}
	defer p.HangUp(client)
	var parts sync.WaitGroup
	defer parts.Wait()
	run := func(f func(context.Context) error) {
		parts.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				p.stop(err)
			}
		})
	}
	replayer := replay.New(client, archive, replay.Config{Routing: p.Routing, Lease: p.Lease, Poll: p.Poll, Logger: p.Logger})
	p.sender.Store(replayer)
	run(replayer.Run)
	if len(p.Queues) > 0 {
		ingest, err := ingest.New(client, archive, ingest.Config{Queues: p.Queues, Origin: p.Origin, Lease: p.Lease, Logger: p.Logger})
		if err != nil {
			return err
		}
		p.ingest.Store(ingest)
		run(ingest.Run)
	}
	if books != nil {
		run(func(ctx context.Context) error {
			books.Run(ctx, ledger.Sources{Archive: archive, Broker: p.Broker}, func() []ledger.Account { return p.Accounts })
			return nil
		})
	}
	if p.Work != nil {
		// Keep writing the ledger until the workers have stopped.
		run(func(ctx context.Context) error {
			writing, written := context.WithCancel(context.WithoutCancel(ctx))
			var books sync.WaitGroup
			books.Go(func() { _ = book.Run(writing) })
			err := p.Work(ctx, p, book)
			written()
			books.Wait()
			return err
		})
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// await calls the function open, and repeats the call while the database is unavailable, until ctx is done.
func await[T any](ctx context.Context, open func() (T, error)) (T, error) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		opened, err := open()
		switch {
		case err == nil:
			return opened, nil
		case ctx.Err() != nil:
			return opened, context.Cause(ctx)
		case !errors.Is(err, store.ErrUnavailable):
			return opened, err
		}
		select {
		case <-ctx.Done():
			return opened, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// Client returns the configuration of a client of this process.
func (p *Process) Client(name string) *reprise.Config {
	return &reprise.Config{Name: name, Dial: p.network.Dial, Logger: p.Logger, Heartbeat: p.Heartbeat}
}

// HangUp closes a client of this process. It waits at most 30 s.
func (p *Process) HangUp(c *reprise.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// wake wakes the Replayer for the console. It does nothing before the Replayer has a connection.
type wake struct{ p *Process }

func (w wake) Wake() {
	if r := w.p.sender.Load(); r != nil {
		r.Wake()
	}
}

// Open opens another database of the process. The caller closes it.
func (p *Process) Open(file string) *sql.DB {
	d := NewDatabase(file)
	p.mu.Lock()
	p.others = append(p.others, d)
	killed := p.killed.Load()
	p.mu.Unlock()
	if killed {
		d.Kill(func() {})
	}
	return sql.OpenDB(d)
}

// errStopped is the cause of a shutdown by SIGTERM.
var errStopped = errors.New("process was stopped")

// Stop shuts the process down gracefully and waits until it has exited.
func (p *Process) Stop() error {
	p.stop(errStopped)
	<-p.ended
	if p.killed.Load() || errors.Is(p.err, errStopped) {
		return nil
	}
	return p.err
}

// Kill stops the process immediately, as SIGKILL does. The process executes no further statements, and its connections
// are closed. Kill calls the function keep while the files do not change. The goroutines of the process return later,
// when they notice the kill.
func (p *Process) Kill(keep func()) {
	if p.killed.Swap(true) {
		return
	}
	p.mu.Lock()
	all := append([]*Database{p.Database}, p.others...)
	p.mu.Unlock()
	for _, d := range all {
		then := keep
		keep = func() { d.Kill(then) }
	}
	p.network.kill()
	keep()
	p.stop(errDead)
}

// Killed reports whether the process was killed.
func (p *Process) Killed() bool { return p.killed.Load() }

// Cut cuts the connections from the process to the broker.
func (p *Process) Cut() {
	if p.network.cut() > 0 {
		p.cut.Add(1)
	}
}

// Archive returns the archive, or nil if it is not open yet.
func (p *Process) Archive() *store.Archive { return p.archive.Load() }

// Ledger returns the ledger, or nil if the process has no open ledger.
func (p *Process) Ledger() *ledger.Ledger { return p.ledger.Load() }

// ServeHTTP serves the console while the process runs.
func (p *Process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := p.console.Load()
	p.mu.Lock()
	if c == nil || p.closed || p.killed.Load() {
		p.mu.Unlock()
		http.Error(w, "connection refused", http.StatusBadGateway)
		return
	}
	p.handling.Add(1)
	p.mu.Unlock()
	defer p.handling.Done()
	c.ServeHTTP(w, r)
}

// checkTimeout is the maximum time that /readyz waits for a database.
const checkTimeout = 3 * time.Second

// errNotOpen is the state of an archive that is not open yet.
var errNotOpen = errors.New("not open yet")

// Ready returns the state of the archive that /readyz reports; nil: the archive is usable.
func (p *Process) Ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	archive := p.archive.Load()
	if archive == nil {
		return errNotOpen
	}
	if err := archive.Healthy(ctx); err != nil {
		return err
	}
	if in := p.ingest.Load(); in != nil {
		return in.Healthy()
	}
	return nil
}

// copyDatabase copies the files of a database in the state in which a killed process left them.
func copyDatabase(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	for _, suffix := range []string{"", "-wal"} {
		err := copyFile(from+suffix, to+suffix)
		if err != nil && !(suffix != "" && errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("cannot copy a database: %w", err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
