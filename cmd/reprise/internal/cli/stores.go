package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/idempotent"
)

// stores are where the workers of a configuration remember what is done.
type stores struct {
	of  []idempotent.Store // of each worker; nil: none
	all []*sqlStore
}

// sqlStore is a store in a database. Workers that name the same one share it.
type sqlStore struct {
	*idempotent.SQL
	db    *database
	place string // path or URL
}

// newStores makes them and reports those that cannot be used. It connects to
// nothing.
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

// store returns what a worker asks for.
func (s *stores) store(d *config.Duplicates) (idempotent.Store, error) {
	if d == nil {
		return nil, nil
	}
	if d.Memory {
		return new(idempotent.Memory), nil
	}
	place, open, dialect := d.Postgres, openPostgres, idempotent.PostgreSQL
	if d.SQLite != "" {
		place, open, dialect = d.SQLite, openSQLite, idempotent.SQLite
	}
	if i := slices.IndexFunc(s.all, func(x *sqlStore) bool { return x.place == place }); i >= 0 {
		return s.all[i], nil
	}
	db, err := open(place)
	if err != nil {
		return nil, err
	}
	if dialect == idempotent.SQLite {
		db.SetMaxOpenConns(1) // there is one writer at a time; others wait here
	}
	store, err := idempotent.NewSQL(db.DB, idempotent.SQLConfig{Dialect: dialect})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	x := &sqlStore{store, db, place}
	s.all = append(s.all, x)
	return x, nil
}

// prepare makes the tables. It waits for a database that cannot be reached until ctx ends.
func (s *stores) prepare(ctx context.Context, log *slog.Logger) error {
	for _, x := range s.all {
		x.db.private()
		if err := x.db.await(ctx, log, "store of duplicates", func() error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return x.Migrate(ctx)
		}); err != nil {
			return err
		}
	}
	return nil
}

// parts are the databases, for whoever asks how the process is.
func (s *stores) parts() (all []dependency) {
	for _, x := range s.all {
		all = append(all, dependency{kind: "duplicates", name: x.db.name, healthy: x.Healthy})
	}
	return all
}

// close closes the databases.
func (s *stores) close() {
	for _, x := range s.all {
		_ = x.db.Close() // what is done is in it
	}
}

// storePause is how long a worker leaves its store alone that could not be asked.
const storePause = 5 * time.Second

// protect returns the configuration of the i-th worker, which handles a message once
// if it is to. While the store cannot be asked, nothing can be handled: messages
// wait in their queue, and those that were on their way are not parked for it.
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
	// First, or a rule of the file for any error would park them.
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
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
		err := next.Handle(ctx, m)
		if noStore(err) {
			return reprise.PauseFor(storePause, err)
		}
		return err
	})
}
