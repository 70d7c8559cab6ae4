package archiving

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/database"
	"github.com/reprisemq/reprise/cmd/reprise/internal/health"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/prommetrics"
)

// Outbox opens an outbox whose database may not be reachable yet.
type Outbox struct {
	Name string // of the database, without a password

	db     *database.DB
	cfg    outbox.Config
	open   atomic.Pointer[outbox.Box] // nil until Show
	status atomic.Pointer[outbox.Status]
}

// NewOutbox returns the outbox in a database: sqlite:PATH, postgres://… or mysql://…. It does not connect. The Config needs no
// Dialect.
func NewOutbox(store string, cfg outbox.Config) (*Outbox, error) {
	db, err := database.OpenOutbox(store)
	if err != nil {
		return nil, err
	}
	cfg.Dialect = db.Dialect
	if err := cfg.Validate(); err != nil {
		_ = db.Close() // not connected
		return nil, err
	}
	return &Outbox{Name: db.Name, db: db, cfg: cfg}, nil
}

// outboxPause is the pause after an error that is probably permanent.
const outboxPause = 30 * time.Second

// Await opens the outbox. It repeats this until it succeeds or ctx is canceled.
func (o *Outbox) Await(ctx context.Context, log *slog.Logger) (*outbox.Box, error) {
	for {
		var opened *outbox.Box
		err := sqlkit.Await(ctx, log, "outbox", o.Name, func() (err error) {
			o.db.CreateFile()
			if err := o.db.CheckFile(ctx); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			opened, err = outbox.Open(ctx, o.db.DB, o.cfg)
			return err
		})
		if err == nil || ctx.Err() != nil {
			return opened, err
		}
		log.Error("outbox not available", "error", err, "next_try", outboxPause)
		if err := retry.Sleep(ctx, outboxPause); err != nil {
			return nil, err
		}
	}
}

// Writable returns an error if the SQLite file cannot be written. Call it before the first statement.
func (o *Outbox) Writable() error { return o.db.Writable() }

// Check returns an error if the outbox, or one of the tables of other programs, cannot be used. It changes nothing.
func (o *Outbox) Check(ctx context.Context, tables []outbox.Table) error {
	exists := false
	err := o.db.Check(ctx, func(db *sql.DB) error {
		exists = true
		return outbox.Check(ctx, db, o.cfg, tables...)
	})
	if err == nil && !exists && len(tables) > 0 {
		return fmt.Errorf("cannot use table %q: the file does not exist (create it with the table, or correct the path)", tables[0].Name)
	}
	return err
}

// Show makes the console and the health checks use an open box.
func (o *Outbox) Show(opened *outbox.Box) { o.open.Store(opened) }

// Box returns the open box, or nil.
func (o *Outbox) Box() *outbox.Box { return o.open.Load() }

// Stores returns the database for health checks.
func (o *Outbox) Stores() []health.Store {
	if o == nil {
		return nil
	}
	return []health.Store{{Kind: "outbox", Name: o.Name, Healthy: o.healthy, Record: func(m *prommetrics.Metrics) {
		if s := o.status.Load(); s != nil {
			m.Outbox(s.Lag, s.Next, s.Relay)
		}
	}}}
}

func (o *Outbox) healthy(ctx context.Context) error {
	opened := o.Box()
	if opened == nil {
		return archive.ErrNotOpen
	}
	s, err := opened.Status(ctx)
	if err == nil {
		o.status.Store(&s)
	}
	return err
}

// Close closes the database.
func (o *Outbox) Close() {
	if o != nil {
		_ = o.db.Close() // all changes are committed
	}
}
