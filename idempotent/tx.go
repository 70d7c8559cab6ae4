package idempotent

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
)

// TxConfig adjusts Tx. The zero value means the defaults.
type TxConfig struct {
	// Key, Scope and Keyless are those of Config. Without protection a handler has
	// its transaction all the same.
	Key     func(m *reprise.Message) string
	Scope   string
	Keyless Keyless

	// Retention is how long a key that is done is remembered, as in Config.
	// Default 7 days.
	Retention time.Duration

	// Options are those of the transaction. Default: the database's isolation.
	Options *sql.TxOptions

	// Logger receives the events "duplicate", "busy" and "no key" listed at Middleware.
	// Default: none.
	Logger *slog.Logger
}

// Validate reports settings that cannot work and what to write instead.
func (c TxConfig) Validate() error {
	err := errors.Join(validRetention("TxConfig", c.Retention), validKeyless("TxConfig", c.Keyless))
	if c.Options != nil && c.Options.ReadOnly {
		err = errors.Join(err, errors.New("idempotent: TxConfig.Options.ReadOnly: the key has to be written: leave it false"))
	}
	return err
}

// Tx makes a Handler of a function whose effect is in the same database as the
// store. The function is given a transaction in which the message's key has been
// inserted; it makes its effect there, and leaves the commit to Tx. Both become
// true together, so the effect happens exactly once while the key is remembered.
//
//	f returns nil            commit: the message is done
//	f returns an error       rollback; the error decides what becomes of the message
//	f panics                 rollback; the panic goes on
//	the commit fails         the message comes back; if the commit has happened
//	                         nevertheless, the key is there and the message is done
//	the key is there         rollback; the message is done
//
// A duplicate that comes while the other runs waits for that one's transaction,
// in its slot and with a connection of its own, and then goes by what became of
// it. It makes no attempt of that. (Under an isolation stricter than READ COMMITTED,
// PostgreSQL fails it instead, and it comes back as any failed message.) In SQLite
// transactions wait for one another anyhow.
//
// What f does elsewhere is not part of the transaction: for a request to another
// service, write into a table of the same transaction what is to be requested, or
// use Middleware.
func Tx(store *SQL, cfg TxConfig, f func(ctx context.Context, tx *sql.Tx, m *reprise.Message) error) (reprise.Handler, error) {
	if store == nil {
		return nil, errors.New("idempotent: Tx needs a store: OpenSQL returns one")
	}
	if f == nil {
		return nil, errors.New("idempotent: Tx needs a function to run in the transaction")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Retention = cmp.Or(cfg.Retention, DefaultRetention)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &transactional{store: store, cfg: cfg, keys: keys{cfg.Key, cfg.Scope, cfg.Keyless}, f: f}, nil
}

// TxJSON is Tx for messages whose body is JSON, which it decodes into a T as reprise.JSON does: a
// body that does not decode is parked.
func TxJSON[T any](store *SQL, cfg TxConfig, f func(ctx context.Context, tx *sql.Tx, body T, m *reprise.Message) error) (reprise.Handler, error) {
	if f == nil {
		return nil, errors.New("idempotent: TxJSON needs a function to run in the transaction")
	}
	return Tx(store, cfg, func(ctx context.Context, tx *sql.Tx, m *reprise.Message) error {
		return reprise.JSON(func(ctx context.Context, body T, m *reprise.Message) error {
			return f(ctx, tx, body, m)
		}).Handle(ctx, m)
	})
}

type transactional struct {
	store *SQL
	cfg   TxConfig // with defaults
	keys  keys
	f     func(ctx context.Context, tx *sql.Tx, m *reprise.Message) error
}

func (t *transactional) Handle(ctx context.Context, m *reprise.Message) error {
	key := t.keys.of(m)
	if key == "" {
		if err := t.keys.without(t.cfg.Logger, m); err != nil {
			return err
		}
	}
	if err := t.store.db.Watch(ctx); err != nil {
		return &StoreError{Op: "begin", Key: key, Err: err}
	}
	tx, err := t.store.db.Begin(ctx, t.cfg.Options)
	if err != nil {
		return &StoreError{Op: "begin", Key: key, Err: err}
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if key != "" {
		// Before anything else: in SQLite, a transaction that has read and then
		// writes fails if another has written meanwhile.
		got, err := t.store.claim(ctx, inTx{tx}, key, rand.Text(), t.cfg.Retention, true)
		if err != nil {
			return &StoreError{Op: "claim", Key: key, Err: err}
		}
		if got.State != Claimed {
			return refused(t.cfg.Logger, m, key, got)
		}
		takeBusy(m)
	}
	if err := t.f(ctx, tx, m); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if errors.Is(err, sql.ErrTxDone) {
			if err = context.Cause(ctx); err == nil { // with which it is rolled back
				err = fmt.Errorf("%w: the handler has ended it: leave that to Tx", sql.ErrTxDone)
			}
		}
		return &StoreError{Op: "commit", Key: key, Err: err}
	}
	if err := t.store.db.Committed(); err != nil {
		return &StoreError{Op: "commit", Key: key, Err: err}
	}
	if key != "" {
		t.store.completed(ctx)
	}
	return nil
}
