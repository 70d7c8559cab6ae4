package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Box is a set of tables with messages that have not left. It is safe for concurrent use, by any number of processes.
type Box struct {
	cfg  Config // with defaults
	db   *sqlkit.DB
	wake chan struct{} // receives a value after an insert in this process

	mu      sync.Mutex
	entries []*entry // of Every
	ticked  int64    // time of the last tick, ms since 1970
}

// Open returns the box in db, and creates its tables if they do not exist. The caller closes db. Several processes may
// call Open at the same time. If the tables exist, Open needs only the permission to read them.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Box, error) {
	b, err := newBox(db, cfg)
	if err != nil {
		return nil, err
	}
	if err := b.db.Create(ctx, schemaOf(b.cfg.Dialect, b.cfg.Prefix)); err != nil {
		return nil, fmt.Errorf("outbox: cannot create tables %s…: %w", b.cfg.Prefix, err)
	}
	return b, nil
}

func newBox(db *sql.DB, cfg Config) (*Box, error) {
	if db == nil {
		return nil, errors.New("outbox: database must not be nil (sql.Open returns one)")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Box{cfg: cfg, db: sqlkit.New(db, cfg.Dialect, cfg.Prefix), wake: make(chan struct{}, 1)}, nil
}

// transaction runs f in a transaction that writes.
func (b *Box) transaction(ctx context.Context, f func(tx *sqlkit.Tx) error) error {
	return b.db.Transaction(ctx, b.cfg.Dialect.Writing(), f)
}

// signal wakes the relays of this process.
func (b *Box) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}
