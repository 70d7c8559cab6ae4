package idempotent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit"
)

// book returns the statement that inserts an effect.
func (d database) book() string {
	if d.dialect == idempotent.PostgreSQL {
		return `INSERT INTO bookings VALUES ($1)`
	}
	return `INSERT INTO bookings VALUES (?)`
}

// bookings creates a table whose rows are effects, and returns a function that inserts one.
func (d database) bookings(t testing.TB) func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
	t.Helper()
	d.exec(t, `CREATE TABLE bookings (message TEXT NOT NULL)`)
	return func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		_, err := tx.ExecContext(ctx, d.book(), m.MessageID)
		return err
	}
}

func transaction(t testing.TB, store *idempotent.SQL, cfg idempotent.TxConfig, f func(context.Context, *sql.Tx, *reprise.Delivery) error) reprise.Handler {
	t.Helper()
	h, err := idempotent.Tx(store, cfg, f)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// idle fails the test if a connection was not returned to the pool.
func (d database) idle(t testing.TB) {
	t.Helper()
	testkit.Eventually(t, timeout, func() error {
		if n := d.Stats().InUse; n > 0 {
			return fmt.Errorf("connections in use: got %d, want 0", n)
		}
		return nil
	})
}

func TestTxCommitsEffectOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		book := db.bookings(t)
		log, logged := events()
		h := transaction(t, db.store(t), idempotent.TxConfig{Logger: log}, book)
		for range 3 {
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Error(err)
			}
		}
		if n := db.count(t, "bookings"); n != 1 {
			t.Errorf("got %d bookings, want 1", n)
		}
		if n := strings.Count(logged(), "msg=duplicate queue=orders message_id=order-1 key=orders/order-1"); n != 2 {
			t.Errorf("got %d log lines about duplicates, want 2:\n%s", n, logged())
		}
		db.idle(t)
	})
}

// If the function fails in any way, neither the effect nor the key remains.
func TestTxRollsBackFailedRuns(t *testing.T) {
	for name, leave := range map[string]func(context.CancelFunc) error{
		"error":        func(context.CancelFunc) error { return errHandler },
		"panic":        func(context.CancelFunc) error { panic(errHandler) },
		"goexit":       func(context.CancelFunc) error { runtime.Goexit(); return nil },
		"end of drain": func(cancel context.CancelFunc) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database) {
				book := db.bookings(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				runs := 0
				h := transaction(t, db.store(t), idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
					runs++
					if err := book(ctx, tx, m); err != nil || runs > 1 {
						return err
					}
					return leave(cancel)
				})
				var err error
				var value any
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { value = recover() }()
					err = h.Handle(ctx, message())
				})
				wg.Wait()
				switch name {
				case "error":
					if err != errHandler {
						t.Errorf("got %v, want the error of the handler", err)
					}
				case "panic":
					if value != errHandler {
						t.Errorf("panic value: got %v, want %v", value, errHandler)
					}
				case "end of drain":
					if !errors.Is(err, context.Canceled) {
						t.Errorf("got %v, want context.Canceled", err)
					}
				}
				db.idle(t)
				if n := db.count(t, "bookings") + db.count(t, idempotent.DefaultTable); n != 0 {
					t.Errorf("%d rows remain, want 0", n)
				}
				for range 2 {
					if err := h.Handle(t.Context(), message()); err != nil {
						t.Error(err)
					}
				}
				if n := db.count(t, "bookings"); n != 1 || runs != 2 {
					t.Errorf("got %d bookings in %d runs, want 1 in 2", n, runs)
				}
			})
		})
	}
}

// Tx handles one of several concurrent duplicates, and acknowledges the others.
func TestTxHandlesOneOfConcurrentDuplicates(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		book := db.bookings(t)
		for _, tc := range []struct {
			name     string
			failures int32 // number of first runs that fail
			options  *sql.TxOptions
			retried  bool // the database may refuse a duplicate instead of letting it wait
		}{
			{name: "all succeed"},
			{name: "the first fails", failures: 1},
			{name: "serializable", options: &sql.TxOptions{Isolation: sql.LevelSerializable}, retried: true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				store := db.store(t, func(c *idempotent.SQLConfig) { c.Table = strings.ReplaceAll(tc.name, " ", "_") })
				db.exec(t, "DELETE FROM bookings")
				var runs, failures atomic.Int32
				h := transaction(t, store, idempotent.TxConfig{Options: tc.options}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
					if runs.Add(1) <= tc.failures {
						return errHandler
					}
					return book(ctx, tx, m)
				})
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for err := h.Handle(t.Context(), message()); err != nil; err = h.Handle(t.Context(), message()) {
							var failed *idempotent.StoreError
							if failures.Add(1); !tc.retried && err != errHandler || tc.retried && !errors.As(err, &failed) {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				if n := db.count(t, "bookings"); n != 1 {
					t.Errorf("got %d bookings, want 1", n)
				}
				if !tc.retried && (failures.Load() != tc.failures || runs.Load() != tc.failures+1) {
					t.Errorf("got %d runs and %d failures, want %d and %d", runs.Load(), failures.Load(), tc.failures+1, tc.failures)
				}
			})
		}
	})
}

// After a failed commit, it is unknown whether the commit took effect. The next attempt detects it.
func TestTxReportsFailedCommit(t *testing.T) {
	for name, happened := range map[string]bool{"and has happened": true, "and has not happened": false} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database) {
				flaky := &flakyConnector{real: db.Driver(), source: db.source}
				flaky.commit.Store(true)
				db.DB = sql.OpenDB(flaky)
				t.Cleanup(func() { db.DB.Close() })
				book := db.bookings(t)
				store := db.store(t)
				h := transaction(t, store, idempotent.TxConfig{}, book)

				flaky.fail.Store(true)
				flaky.commit.Store(happened)
				err := h.Handle(t.Context(), message())
				var failed *idempotent.StoreError
				if !errors.As(err, &failed) || failed.Op != "commit" || !errors.Is(err, errConn) {
					t.Fatalf("got %v, want StoreError of the commit", err)
				}
				flaky.fail.Store(false)
				flaky.commit.Store(true)
				for range 2 {
					if err := h.Handle(t.Context(), message()); err != nil {
						t.Error(err)
					}
				}
				if n := db.count(t, "bookings"); n != 1 {
					t.Errorf("got %d bookings, want 1", n)
				}
			})
		})
	}
}

func TestTxReportsCommitByHandler(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		book := db.bookings(t)
		h := transaction(t, db.store(t), idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
			if err := book(ctx, tx, m); err != nil {
				return err
			}
			return tx.Commit()
		})
		if err := h.Handle(t.Context(), message()); err == nil || !strings.Contains(err.Error(), "handler must not commit or roll back the transaction") {
			t.Errorf("got %v, want an error because of the commit by the handler", err)
		}
		if err := h.Handle(t.Context(), message()); err != nil {
			t.Error(err)
		}
		if n := db.count(t, "bookings"); n != 1 {
			t.Errorf("got %d bookings, want 1", n)
		}
	})
}

// PostgreSQL rolls back the transaction after a failed statement, even if the handler ignores the error.
func TestTxReportsIgnoredError(t *testing.T) {
	db := openPostgres(t)
	book := db.bookings(t)
	h := transaction(t, db.store(t), idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		if err := book(ctx, tx, m); err != nil {
			return err
		}
		_, _ = tx.ExecContext(ctx, "SELECT nothing FROM nowhere")
		return nil
	})
	var failed *idempotent.StoreError
	if err := h.Handle(t.Context(), message()); !errors.As(err, &failed) || failed.Op != "commit" {
		t.Errorf("got %v, want StoreError of the commit", err)
	}
	if n := db.count(t, "bookings") + db.count(t, idempotent.DefaultTable); n != 0 {
		t.Errorf("%d rows remain, want 0", n)
	}
}

// Tx and Middleware share a table, so that a worker can switch between them while messages are in flight.
func TestTxAndMiddlewareShareKeys(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		store := db.store(t)
		var inner countingHandler
		wrapped := protect(t, store, idempotent.Config{}, inner.Handle)
		book := db.bookings(t)
		h := transaction(t, store, idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
			if len(m.Headers) > 0 {
				t.Errorf("headers: got %v, want none", m.Headers)
			}
			return book(ctx, tx, m)
		})

		if c, err := store.Claim(t.Context(), "orders/order-1", "middleware", time.Hour); c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		var later *reprise.RetryAfterError
		var noted *reprise.AnnotatedError
		err := h.Handle(t.Context(), message())
		if !errors.As(err, &later) || !errors.As(err, &noted) || !errors.Is(err, idempotent.ErrBusy) {
			t.Fatalf("got %v, want ErrBusy with a delay", err)
		}
		again := message()
		again.Headers = noted.Headers
		if err := store.Release(t.Context(), "orders/order-1", "middleware"); err != nil {
			t.Fatal(err)
		}
		for _, h := range []reprise.Handler{h, wrapped, h} {
			if err := h.Handle(t.Context(), again); err != nil {
				t.Error(err)
			}
		}
		if n := db.count(t, "bookings"); n != 1 || inner.runs.Load() != 0 {
			t.Errorf("got %d bookings and %d runs of the other handler, want 1 and 0", n, inner.runs.Load())
		}
	})
}

func TestTxOfMessageWithoutKey(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		book := db.bookings(t)
		store := db.store(t)
		h := transaction(t, store, idempotent.TxConfig{Keyless: idempotent.HandleKeyless}, book)
		for range 2 {
			if err := h.Handle(t.Context(), &reprise.Delivery{Queue: "orders"}); err != nil {
				t.Error(err)
			}
		}
		if n := db.count(t, "bookings"); n != 2 {
			t.Errorf("got %d bookings of unprotected messages, want 2", n)
		}
		h = transaction(t, store, idempotent.TxConfig{}, book)
		if err := h.Handle(t.Context(), &reprise.Delivery{Queue: "orders"}); !errors.Is(err, idempotent.ErrNoKey) {
			t.Errorf("got %v, want ErrNoKey", err)
		}
	})
}

// Tx also purges the table.
func TestTxPurgesTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		store := db.store(t, func(c *idempotent.SQLConfig) { c.PurgeEvery = 5 })
		for i := range 20 {
			if err := store.Complete(t.Context(), fmt.Sprint("old ", i), "token", time.Nanosecond); err != nil {
				t.Fatal(err)
			}
		}
		h := transaction(t, store, idempotent.TxConfig{}, db.bookings(t))
		n := 0
		testkit.Eventually(t, timeout, func() error {
			n++
			if err := h.Handle(t.Context(), &reprise.Delivery{Message: reprise.Message{MessageID: fmt.Sprint(n)}, Queue: "q"}); err != nil {
				return err
			}
			if old := db.count(t, idempotent.DefaultTable) - n; old > 0 {
				return fmt.Errorf("expired rows: got %d, want 0", old)
			}
			return nil
		})
	})
}

func TestTxConfig(t *testing.T) {
	db := openSQLite(t)
	store := db.store(t)
	f := func(context.Context, *sql.Tx, *reprise.Delivery) error { return nil }
	if _, err := idempotent.Tx(nil, idempotent.TxConfig{}, f); err == nil {
		t.Error("Tx accepted a nil store")
	}
	if _, err := idempotent.Tx(store, idempotent.TxConfig{}, nil); err == nil {
		t.Error("Tx accepted a nil function")
	}
	for _, tc := range []struct {
		cfg  idempotent.TxConfig
		want string
	}{
		{idempotent.TxConfig{Retention: -1}, "(0 means 168h"},
		{idempotent.TxConfig{Keyless: 2}, "ParkKeyless or HandleKeyless"},
		{idempotent.TxConfig{Options: &sql.TxOptions{ReadOnly: true}}, "must be false"},
	} {
		if _, err := idempotent.Tx(store, tc.cfg, f); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.cfg, err, tc.want)
		}
	}
}
