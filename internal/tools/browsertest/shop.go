package browsertest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/topology"
)

// ShopConfig describes a Shop.
type ShopConfig struct {
	Dir      string                     // archive folder
	Listen   string                     // console address; default: a free local port
	Handlers map[string]reprise.Handler // worker handlers by queue
	Attempts int                        // maximum attempts per worker
	Breakers map[string]string          // displayed circuit breaker state by queue
	Seeded   bool                       // whether to add the failures of a month
	Tokens   []console.Token
	Prefix   string // console.Config.Prefix
	Redact   []failed.Rule
}

// Shop is a small shop that runs all parts of Reprise in this process: a broker with its management API, workers, and an archive
// with its console.
type Shop struct {
	URL     string // URL of the console, without the prefix
	Archive *failed.Archive
	Client  *reprise.Client
	Clock   *Clock

	stop []func()
}

// Topology returns the exchange of the shop and its binding to queue.
func Topology(queue string) topology.Topology {
	return topology.Topology{
		Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
		Bindings:  []topology.Binding{{Exchange: "shop", Queue: queue, RoutingKey: queue + ".*"}},
	}
}

// Open starts a shop. The caller must close it.
func Open(ctx context.Context, cfg ShopConfig) (*Shop, error) {
	s := &Shop{Clock: &Clock{}}
	if err := s.open(ctx, cfg); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Shop) open(ctx context.Context, cfg ShopConfig) error {
	b, err := broker.New(broker.Config{})
	if err != nil {
		return err
	}
	s.atEnd(func(ctx context.Context) { _ = b.Shutdown(ctx) })
	management, err := s.serve("127.0.0.1:0", b.Management())
	if err != nil {
		return err
	}
	path := filepath.Join(cfg.Dir, "failed.db")
	if cfg.Seeded {
		content, err := seeded()
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	s.atEnd(func(context.Context) { _ = db.Close() })
	books, err := ledger.Open(ctx, db, ledger.Config{Dialect: failed.SQLite, Every: time.Second})
	if err != nil {
		return err
	}
	book, err := ledger.NewBook(db, ledger.BookConfig{Dialect: failed.SQLite, Every: time.Second})
	if err != nil {
		return err
	}
	if s.Client, err = reprise.Dial(ctx, "amqp://guest:guest@shop/", &reprise.Config{Dial: b.DialContext, Observer: book, Announce: true, Version: "v1.4.0"}); err != nil {
		return err
	}
	s.atEnd(func(ctx context.Context) { _ = s.Client.Close(ctx) })
	if s.Archive, err = failed.Open(ctx, db, failed.Config{Dialect: failed.SQLite, Clock: s.Clock.Now, Redact: cfg.Redact}); err != nil {
		return err
	}
	past, err := history.Open(ctx, db, history.Config{Dialect: failed.SQLite, Clock: s.Clock.Now})
	if err != nil {
		return err
	}
	if cfg.Seeded {
		if err := s.fillImports(ctx); err != nil {
			return err
		}
	}
	workers, err := s.work(ctx, cfg)
	if err != nil {
		return err
	}
	replayer, err := failed.NewReplayer(s.Client, s.Archive, failed.ReplayerConfig{Poll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	s.run(replayer.Run)
	rescheduler, err := failed.NewRescheduler(s.Client, s.Archive, failed.ReschedulerConfig{})
	if err != nil {
		return err
	}
	s.run(rescheduler.Run)
	s.run(book.Run)
	list := fleet.New(s.Client)
	list.Observe(past.Observe)
	s.run(list.Run)
	s.run(func(ctx context.Context) error {
		past.Run(ctx, history.Sources{Archive: s.Archive})
		return nil
	})
	s.run(func(ctx context.Context) error {
		var accounts []ledger.Account
		for _, w := range workers {
			accounts = append(accounts, ledger.Account{Work: []string{w.Queue}})
		}
		from := ledger.Sources{Archive: s.Archive, Broker: &ledger.Management{URL: management, User: "guest", Password: "guest"}}
		books.Run(ctx, from, func() []ledger.Account { return accounts })
		return nil
	})
	c, err := console.New(console.Config{
		Archive: s.Archive, Replayer: replayer, Workers: func() []console.Worker { return workers }, Tokens: cfg.Tokens, Ledger: books, Fleet: list, Rescheduler: rescheduler, History: past, Broker: func() *reprise.Client { return s.Client }, Prefix: cfg.Prefix,
		TraceURL:   "https://traces.example.com/trace/{trace_id}",
		Management: &console.Management{URL: management, User: "guest", Password: "guest"},
	})
	if err != nil {
		return err
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	s.URL, err = s.serve(cfg.Listen, c)
	return err
}

// fillImports declares a queue that contains 12 messages and has no workers.
func (s *Shop) fillImports(ctx context.Context) error {
	if err := s.Client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: "imports"}}}); err != nil {
		return err
	}
	for i := range 12 {
		if err := s.Client.Publish(ctx, &reprise.Message{RoutingKey: "imports", Body: fmt.Appendf(nil, `{"row":%d}`, i)}); err != nil {
			return err
		}
	}
	return nil
}

// work starts a worker and an ingest for each queue.
func (s *Shop) work(ctx context.Context, cfg ShopConfig) ([]console.Worker, error) {
	var workers []console.Worker
	var parked []string
	for queue, handler := range cfg.Handlers {
		w, err := reprise.NewWorker(s.Client, reprise.WorkerConfig{
			Queue: queue, Handler: handler, Topology: Topology(queue), Concurrency: 4,
			Policy: reprise.Policy{MaxAttempts: max(cfg.Attempts, 1), Backoff: backoff.Fixed(time.Millisecond)},
		})
		if err != nil {
			return nil, err
		}
		// Customers may publish before the worker has declared its queue.
		if err := s.Client.Declare(ctx, topology.Buckets{}.Topology(queue).Merge(Topology(queue))); err != nil {
			return nil, err
		}
		s.run(w.Run)
		shown := console.Worker{Queue: queue, State: func() error { return w.Status().Err }}
		if state, ok := cfg.Breakers[queue]; ok {
			shown.Breaker = func() string { return state }
		}
		workers = append(workers, shown)
		parked = append(parked, topology.FailedQueue(queue))
	}
	if parked == nil {
		return nil, nil
	}
	ingest, err := failed.NewIngest(s.Client, s.Archive, failed.IngestConfig{Queues: parked})
	if err != nil {
		return nil, err
	}
	s.run(ingest.Run)
	return workers, nil
}

// atEnd registers f for Close. Close calls the functions in reverse order.
func (s *Shop) atEnd(f func(context.Context)) {
	s.stop = append(s.stop, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		f(ctx)
	})
}

// run runs f until Close.
func (s *Shop) run(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Println("shop:", err)
		}
	})
	s.atEnd(func(context.Context) {
		cancel()
		running.Wait()
	})
}

// serve serves HTTP and returns the URL.
func (s *Shop) serve(listen string, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	s.atEnd(func(context.Context) {
		_ = server.Close()
		serving.Wait()
	})
	return "http://" + l.Addr().String(), nil
}

// Close closes the shop and waits for its goroutines.
func (s *Shop) Close() {
	for i := len(s.stop) - 1; i >= 0; i-- {
		s.stop[i]()
	}
	s.stop = nil
}
