package upcmd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/database"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// stores contains the deduplication stores of the workers.
type stores struct {
	mu     sync.Mutex // a reload opens stores
	all    []*sqlStore
	memory map[string]*idempotent.Memory // by work queue
}

// sqlStore is a store in a database. Workers with the same database share the store.
type sqlStore struct {
	*idempotent.SQL
	db    *database.DB
	place string // path or URL
	at    config.Position
	ready bool // has its table; only prepare uses it
}

// store returns the store of a worker, or nil. It does not connect. A worker that replaces another worker of its queue gets
// the same store in memory, which knows the messages of the other worker.
func (s *stores) store(w config.Worker) (idempotent.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := w.Duplicates
	if d == nil {
		return nil, nil
	}
	if d.Memory {
		if s.memory[w.Queue] == nil {
			s.memory[w.Queue] = new(idempotent.Memory)
		}
		return s.memory[w.Queue], nil
	}
	place, open, dialect := d.Postgres, database.OpenPostgres, idempotent.PostgreSQL
	if d.SQLite != "" {
		place, open, dialect = d.SQLite, database.OpenSQLite, idempotent.SQLite
	}
	if i := slices.IndexFunc(s.all, func(x *sqlStore) bool { return x.place == place }); i >= 0 {
		return s.all[i], nil
	}
	db, err := open(place)
	if err != nil {
		return nil, err
	}
	if dialect == idempotent.SQLite {
		db.SetMaxOpenConns(1) // SQLite has a single writer, so other writers wait here
	}
	store, err := idempotent.NewSQL(db.DB, idempotent.SQLConfig{Dialect: dialect})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	x := &sqlStore{SQL: store, db: db, place: place, at: d.At}
	s.all = append(s.all, x)
	return x, nil
}

// prepare creates the tables. It waits for an unreachable database until ctx is canceled.
func (s *stores) prepare(ctx context.Context, log *slog.Logger) error {
	for _, x := range s.opened() {
		if x.ready {
			continue
		}
		x.db.CreateFile()
		if err := sqlkit.Await(ctx, log, "store of duplicates", x.db.Name, func() error {
			if err := x.db.CheckFile(ctx); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return x.Migrate(ctx)
		}); err != nil {
			return err
		}
		x.ready = true
	}
	return nil
}

func (s *stores) opened() []*sqlStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// parts returns the databases for health checks.
func (s *stores) parts() (all []health.Store) {
	for _, x := range s.opened() {
		all = append(all, health.Store{Kind: "duplicates", Name: x.db.Name, Healthy: x.Healthy})
	}
	return all
}

// close closes the databases.
func (s *stores) close() {
	for _, x := range s.opened() {
		_ = x.db.Close() // all changes are committed
	}
}

// storePause is the duration of a worker's pause after its store was unavailable.
const storePause = 5 * time.Second

// protect returns the configuration of a worker with a store, which may be nil. While the store is unavailable, the worker
// does not process messages. Messages wait in their queue, and messages in flight are not parked.
func protect(w config.Worker, store idempotent.Store, log *slog.Logger) (reprise.WorkerConfig, error) {
	cfg := w.WorkerConfig
	if store == nil {
		return cfg, nil
	}
	c := w.Duplicates.Config
	c.Logger = log
	once, err := idempotent.Middleware(store, c)
	if err != nil {
		return cfg, err
	}
	cfg.Middleware = append([]reprise.Middleware{pauseWithoutStore, once}, cfg.Middleware...)
	// This rule comes first, because a rule of the file for all errors would park the messages.
	cfg.Policy.Rules = append([]reprise.Rule{{
		Match:       func(err error) bool { return noStore(err) || errors.Is(err, idempotent.ErrBusy) },
		MaxAttempts: config.MaxAttempts,
	}}, cfg.Policy.Rules...)
	return cfg, nil
}

func noStore(err error) bool {
	_, ok := errors.AsType[*idempotent.StoreError](err)
	return ok
}

func pauseWithoutStore(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		err := next.Handle(ctx, m)
		if noStore(err) {
			return reprise.PauseFor(storePause, err)
		}
		return err
	})
}
