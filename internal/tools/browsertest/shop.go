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
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// ShopConfig describes a Shop.
type ShopConfig struct {
	Dir      string                     // archive folder
	Listen   string                     // console address; default: a free local port
	Handlers map[string]reprise.Handler // worker handlers by queue
	Attempts int                        // maximum attempts per worker
	Breakers map[string]breaker.State   // displayed circuit breaker by queue
	Seeded   bool                       // whether to add the failures of a month
	Tokens   []archive.Token
	Prefix   string // archive.Console.Prefix
}

// Shop is a small shop that runs all parts of Reprise in this process: a broker with its management API, workers, and an archive
// with its console.
type Shop struct {
	URL     string // URL of the console, without the prefix
	Archive *store.Archive
	Client  *reprise.Client

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
	s := &Shop{}
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
	if s.Archive, err = store.Open(ctx, db, store.Config{Dialect: store.SQLite}); err != nil {
		return err
	}
	box, err := seedOutbox(ctx, db)
	if err != nil {
		return err
	}
	workers := cfg.workers()
	a, err := archive.Open(ctx, archive.Config{
		DB: db, Dialect: archive.SQLite, Workers: workers, Sample: time.Second,
		Outbox:     func() *outbox.Box { return box },
		Management: &archive.Management{URL: management, User: "guest", Password: "guest"},
		Console:    archive.Console{Prefix: cfg.Prefix, Tokens: cfg.Tokens, TraceURL: "https://traces.example.com/trace/{trace_id}"},
	})
	if err != nil {
		return err
	}
	if s.Client, err = reprise.Dial(ctx, "amqp://guest:guest@shop/", &reprise.Config{Dial: b.DialContext, Observer: a.Observer(), Announce: true, Version: "v1.4.0"}); err != nil {
		return err
	}
	s.atEnd(func(ctx context.Context) { _ = s.Client.Close(ctx) })
	if cfg.Seeded {
		if err := s.fillImports(ctx); err != nil {
			return err
		}
	}
	s.run(a.Run)
	if err := s.work(ctx, cfg, a, workers); err != nil {
		return err
	}
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if s.URL, err = s.serve(cfg.Listen, a.Handler()); err != nil || !cfg.Seeded || cfg.Tokens != nil {
		return err
	}
	return s.blockKeys(ctx)
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

// workers returns a worker for each queue.
func (cfg ShopConfig) workers() (all []reprise.WorkerConfig) {
	for queue, handler := range cfg.Handlers {
		all = append(all, reprise.WorkerConfig{
			Queue: queue, Handler: handler, Topology: Topology(queue), Concurrency: 4,
			Policy: reprise.Policy{MaxAttempts: max(cfg.Attempts, 1), Backoff: backoff.Fixed(time.Millisecond)},
		})
	}
	return all
}

// work starts the workers, and connects the archive.
func (s *Shop) work(ctx context.Context, cfg ShopConfig, a *archive.Archive, workers []reprise.WorkerConfig) error {
	var all []archive.Worker
	for _, c := range workers {
		w, err := reprise.NewWorker(s.Client, c)
		if err != nil {
			return err
		}
		// Customers may publish before the worker has declared its queue.
		if err := s.Client.Declare(ctx, topology.Buckets{}.Topology(c.Queue).Merge(c.Topology)); err != nil {
			return err
		}
		s.run(w.Run)
		if state, ok := cfg.Breakers[c.Queue]; ok {
			c.Breaker = breakerIn(state)
		}
		all = append(all, archive.Worker{Worker: w, Config: c})
	}
	a.Connect(s.Client, all...)
	return nil
}

// breakerIn returns a circuit breaker in a state.
func breakerIn(state breaker.State) *breaker.Breaker {
	c := breaker.Config{Failures: 1, OpenFor: time.Hour}
	if state == breaker.HalfOpen {
		c.OpenFor = time.Nanosecond
	}
	b, _ := breaker.New(c) // the configuration is valid
	if state != breaker.Closed {
		record, _ := b.Allow()
		record(errors.New("service is unavailable"))
	}
	return b
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
