package idempotent

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
)

// TxConfig configures Tx. The zero value means the defaults.
type TxConfig struct {
	// Key, Scope and Keyless have the same meaning as in Config. With HandleKeyless, a message without a key is also
	// handled in a transaction.
	Key     func(m *reprise.Delivery) string
	Scope   string
	Keyless Keyless

	// Retention is the time for which the store remembers a completed key, as in Config. Default: 7 days.
	Retention time.Duration

	// Options are the options of the transaction. Default: the default isolation level of the database.
	Options *sql.TxOptions

	// Logger receives the events "duplicate", "busy" and "no key" listed at Middleware. Default: no logging.
	Logger *slog.Logger
}

// Validate reports invalid settings and their valid values.
func (c TxConfig) Validate() error {
	err := errors.Join(validRetention("TxConfig", c.Retention), validKeyless("TxConfig", c.Keyless))
	if c.Options != nil && c.Options.ReadOnly {
		err = errors.Join(err, errors.New("idempotent: TxConfig.Options.ReadOnly must be false, because Tx writes the key"))
	}
	return err
}

// Tx returns a Handler that calls the function f, whose effect must be in the same database as the store. Tx begins a
// transaction, inserts the key of the message and calls f. f writes its effect in this transaction and leaves the
// commit to Tx. One commit makes the key and the effect durable, so while the store remembers the key, the effect
// happens exactly once.
//
//	f returns nil            commit; the message is acknowledged
//	f returns an error       rollback; the error determines how the worker settles the message
//	f panics                 rollback; the panic continues
//	the commit fails         the message is retried; if the commit has happened
//	                         nevertheless, the key exists and the message is acknowledged
//	the key exists           rollback; the message is acknowledged
//
// A duplicate that arrives during the transaction waits until the transaction is committed or rolled back. While it
// waits, it occupies one of the concurrent handlers of the worker and a database connection. After a commit, the
// duplicate is acknowledged. After a rollback, it is handled. The wait does not count as an attempt. Under an isolation
// level stricter than READ COMMITTED, PostgreSQL instead aborts the transaction of the duplicate, and the duplicate is
// retried like any failed message. In SQLite, all transactions wait for one another.
//
// An effect of f elsewhere is not part of the transaction. To send a request to another service, write the request into
// a table in the same transaction, or use Middleware.
func Tx(store *SQL, cfg TxConfig, f func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error) (reprise.Handler, error) {
	if store == nil {
		return nil, errors.New("idempotent: Tx: store must not be nil (OpenSQL returns one)")
	}
	if f == nil {
		return nil, errors.New("idempotent: Tx: function must not be nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Retention = cmp.Or(cfg.Retention, DefaultRetention)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &transactional{store: store, cfg: cfg, keys: keys{cfg.Key, cfg.Scope, cfg.Keyless}, f: f}, nil
}

// TxJSON is Tx for messages with a JSON body. It decodes the body into a T as reprise.JSON does. A message with an
// invalid body is parked.
func TxJSON[T any](store *SQL, cfg TxConfig, f func(ctx context.Context, tx *sql.Tx, body T, m *reprise.Delivery) error) (reprise.Handler, error) {
	if f == nil {
		return nil, errors.New("idempotent: TxJSON: function must not be nil")
	}
	return Tx(store, cfg, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		return reprise.JSON(func(ctx context.Context, body T, m *reprise.Delivery) error {
			return f(ctx, tx, body, m)
		}).Handle(ctx, m)
	})
}

type transactional struct {
	store *SQL
	cfg   TxConfig // with defaults
	keys  keys
	f     func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error
}

func (t *transactional) Handle(ctx context.Context, m *reprise.Delivery) error {
	key := t.keys.of(m)
	if key == "" {
		if err := t.keys.checkKeyless(t.cfg.Logger, m); err != nil {
			return err
		}
	}
	if err := t.store.db.Watch(ctx); err != nil {
		return &StoreError{Op: "begin", Key: key, Err: err}
	}
	tx, got, err := t.begin(ctx, key)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if key != "" {
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
			if err = context.Cause(ctx); err == nil { // the cause of the rollback
				err = fmt.Errorf("%w: handler must not commit or roll back the transaction (Tx does)", sql.ErrTxDone)
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

// maxDeadlocks is the number of deadlocks after which a claim fails.
const maxDeadlocks = 20

// begin begins a transaction, and claims the key.
func (t *transactional) begin(ctx context.Context, key string) (*sql.Tx, Claim, error) {
	for n := 0; ; n++ {
		tx, err := t.store.db.Begin(ctx, t.cfg.Options)
		if err != nil {
			return nil, Claim{}, &StoreError{Op: "begin", Key: key, Err: err}
		}
		if key == "" {
			return tx, Claim{}, nil
		}
		// The claim must be the first statement: in SQLite, a transaction that reads and then writes fails if another
		// transaction has written in between.
		got, err := t.store.claim(ctx, inTx{tx, t.store.cfg.Dialect}, key, rand.Text(), t.cfg.Retention, true)
		if err == nil {
			return tx, got, nil
		}
		_ = tx.Rollback()
		// If several transactions wait for a key whose transaction is rolled back, MySQL aborts all but one of them.
		if deadlock := strings.HasPrefix(err.Error(), "Error 1213 "); !deadlock || n == maxDeadlocks {
			return nil, Claim{}, &StoreError{Op: "claim", Key: key, Err: err}
		}
	}
}
