package upcmd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/database"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// stores contains the deduplication stores of the workers in a configuration.
type stores struct {
	of  []idempotent.Store // store of each worker; nil: none
	all []*sqlStore
}

// sqlStore is a store in a database. Workers with the same database share the store.
type sqlStore struct {
	*idempotent.SQL
	db    *database.DB
	place string // path or URL
}

// newStores creates the stores and reports invalid ones. It does not connect.
func newStores(cfg *config.Config) (*stores, []config.Problem) {
	s := &stores{}
	var wrong []config.Problem
	for _, w := range cfg.Workers {
		store, err := s.store(w.Duplicates)
		if err != nil {
			wrong = append(wrong, config.Problem{Position: w.Duplicates.At, Text: err.Error()})
		}
		s.of = append(s.of, store)
	}
	return s, wrong
}

// store returns the store of a worker.
func (s *stores) store(d *config.Duplicates) (idempotent.Store, error) {
	if d == nil {
		return nil, nil
	}
	if d.Memory {
		return new(idempotent.Memory), nil
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
	x := &sqlStore{store, db, place}
	s.all = append(s.all, x)
	return x, nil
}

// prepare creates the tables. It waits for an unreachable database until ctx is canceled.
func (s *stores) prepare(ctx context.Context, log *slog.Logger) error {
	for _, x := range s.all {
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
	}
	return nil
}

// parts returns the databases for health checks.
func (s *stores) parts() (all []health.Store) {
	for _, x := range s.all {
		all = append(all, health.Store{Kind: "duplicates", Name: x.db.Name, Healthy: x.Healthy})
	}
	return all
}

// close closes the databases.
func (s *stores) close() {
	for _, x := range s.all {
		_ = x.db.Close() // all changes are committed
	}
}

// storePause is the duration of a worker's pause after its store was unavailable.
const storePause = 5 * time.Second

// protect returns the configuration of the i-th worker, with deduplication if it is configured. While the store is
// unavailable, the worker does not process messages. Messages wait in their queue, and messages in flight are not
// parked.
func (s *stores) protect(i int, w config.Worker, log *slog.Logger) (reprise.WorkerConfig, error) {
	cfg := w.WorkerConfig
	if s.of[i] == nil {
		return cfg, nil
	}
	c := w.Duplicates.Config
	c.Logger = log
	once, err := idempotent.Middleware(s.of[i], c)
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
