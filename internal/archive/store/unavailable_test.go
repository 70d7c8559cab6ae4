package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

func arrive(ctx context.Context, a *store.Archive) error {
	_, err := a.Ingest(ctx, []failed.Arrived{{Message: failed.Message{FailedQueue: "orders.failed"}}})
	return err
}

// fault is an event that damages the database of an open archive.
type fault struct {
	cause, repair func(t *testing.T)
	want          string // the expected error
	permanent     bool   // lasts until the archive is opened again
}

// An archive refuses writes with an error while its database is missing, restored to an earlier state, or read-only.
// After a temporary fault, the archive continues without a restart.
func TestArchiveRefusesWritesWhileUnavailable(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		for name, cause := range map[string]func(t *testing.T, path string) fault{
			"deleted": func(t *testing.T, path string) fault {
				return fault{cause: func(t *testing.T) { remove(t, path) }, want: path + " was deleted or moved", permanent: true}
			},
			"moved": func(t *testing.T, path string) fault {
				away := filepath.Join(t.TempDir(), "away.db")
				return fault{
					cause:  func(t *testing.T) { move(t, path, away) },
					repair: func(t *testing.T) { move(t, away, path) },
					want:   path + " was deleted or moved",
				}
			},
			"replaced": func(t *testing.T, path string) fault {
				return fault{cause: func(t *testing.T) {
					remove(t, path)
					check(t, os.WriteFile(path, nil, 0o600))
				}, want: path + " was replaced by another one", permanent: true}
			},
			"replaced by a backup": func(t *testing.T, path string) fault {
				backup := filepath.Join(t.TempDir(), "backup.db")
				openFile(t, path).exec(t, `VACUUM INTO '`+backup+`'`)
				return fault{cause: func(t *testing.T) {
					remove(t, path)
					move(t, backup, path)
				}, want: path + " was replaced by another one", permanent: true}
			},
			"emptied": func(t *testing.T, path string) fault {
				return fault{cause: func(t *testing.T) { check(t, os.Truncate(path, 0)) }, want: path + " was truncated", permanent: true}
			},
			"log deleted": func(t *testing.T, path string) fault {
				return fault{cause: func(t *testing.T) { check(t, os.Remove(path+"-wal")) }, want: path + "-wal with the newest part of the database was deleted", permanent: true}
			},
		} {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "test.db")
				db := openFile(t, path)
				testFault(t, db, func() *store.Archive {
					check(t, db.Close()) // as when a process exits
					return openFile(t, path).open(t)
				}, cause(t, path))
			})
		}
	})
	eachDatabase(t, func(t *testing.T, db database) {
		db.SetMaxOpenConns(1)
		tables := []string{"about", "counter"}
		rename := func(from, to string) func(t *testing.T) {
			return func(t *testing.T) {
				for _, table := range tables {
					db.exec(t, `ALTER TABLE `+from+table+` RENAME TO `+to+table)
				}
			}
		}
		const p = "reprise_failed_"
		all := map[string]fault{
			"older": {
				cause:     func(t *testing.T) { db.exec(t, `UPDATE `+p+`counter SET last = last - 3 WHERE name = 'commit'`) },
				want:      "changes of this process are missing in the database: 3",
				permanent: true,
			},
			"partly restored": { // the tables first, then their rows
				cause: func(t *testing.T) {
					for _, table := range tables {
						db.exec(t, `CREATE TABLE saved_`+table+` AS SELECT * FROM `+p+table)
						db.exec(t, `DELETE FROM `+p+table)
					}
				},
				repair: func(t *testing.T) {
					for _, table := range tables {
						db.exec(t, `INSERT INTO `+p+table+` SELECT * FROM saved_`+table)
						db.exec(t, `DROP TABLE saved_`+table)
					}
				},
				want: "tables of the archive are empty",
			},
			"another": {
				cause:     func(t *testing.T) { db.exec(t, `UPDATE `+p+`about SET value = 'other' WHERE name = 'archive'`) },
				want:      "database contains a different archive",
				permanent: true,
			},
		}
		if db.dialect == store.PostgreSQL {
			all["dropped"] = fault{cause: rename(p, "gone_"), repair: rename("gone_", p), want: "tables are missing: was the schema dropped?"}
			all["read-only"] = fault{
				cause:  func(t *testing.T) { db.exec(t, `SET default_transaction_read_only = on`) },
				repair: func(t *testing.T) { db.exec(t, `SET default_transaction_read_only = off`) },
				want:   "read-only",
			}
		}
		for name, a := range all {
			t.Run(name, func(t *testing.T) {
				testFault(t, db, func() *store.Archive { return db.open(t) }, a)
			})
		}
	})
}

// If the file becomes read-only, the archive refuses writes, and Healthy returns an error.
func TestArchiveReportsReadOnlyFile(t *testing.T) {
	file := &reopeningConnector{path: filepath.Join(t.TempDir(), "test.db")}
	db := database{sql.OpenDB(file), store.SQLite, new(atomic.Int64), ""}
	t.Cleanup(func() { db.Close() })
	mode := func(mode string) func(t *testing.T) {
		return func(*testing.T) {
			file.mode.Store(&mode)
			db.SetMaxIdleConns(0) // closes the idle connections
			db.SetMaxIdleConns(2)
		}
	}
	mode("rwc")(t)
	testFault(t, db, nil, fault{cause: mode("ro"), repair: mode("rwc"), want: "attempt to write a readonly database"})
}

// A change that its caller cancels does not make an unavailable archive healthy.
func TestCancelledChangeDoesNotRestoreHealth(t *testing.T) {
	file := &reopeningConnector{path: filepath.Join(t.TempDir(), "test.db")}
	db := database{sql.OpenDB(file), store.SQLite, new(atomic.Int64), ""}
	t.Cleanup(func() { db.Close() })
	mode := "rwc"
	file.mode.Store(&mode)
	a := db.open(t)
	readOnly := "ro"
	file.mode.Store(&readOnly)
	db.SetMaxIdleConns(0)
	if err := arrive(t.Context(), a); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Ingest: got error %v, want ErrUnavailable", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // several times, because the cancellation may precede the query
		if err := arrive(cancelled, a); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled Ingest: got error %v, want context.Canceled", err)
		}
	}
	if err := a.Healthy(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Healthy: got error %v, want ErrUnavailable", err)
	}
}

// reopeningConnector opens a file in different modes.
type reopeningConnector struct {
	path string
	mode atomic.Pointer[string]
}

func (r *reopeningConnector) Connect(context.Context) (driver.Conn, error) {
	return r.Driver().Open("file:" + r.path + "?_pragma=synchronous(OFF)&mode=" + *r.mode.Load())
}

func (*reopeningConnector) Driver() driver.Driver { return &sqlite.Driver{} }

func testFault(t *testing.T, db database, reopen func() *store.Archive, x fault) {
	t.Helper()
	var log bytes.Buffer
	a := db.open(t, func(c *store.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	before := value(a.Count(t.Context(), failed.Filter{}))(t).N
	for range 5 {
		check(t, arrive(t.Context(), a))
	}
	check(t, a.Healthy(t.Context()))
	x.cause(t)
	for range 2 {
		err := arrive(t.Context(), a)
		if err == nil || !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Ingest: got error %v, want %q", err, x.want)
		}
		err = a.Healthy(t.Context())
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Healthy: got error %v, want %q", err, x.want)
		}
	}
	if x.repair != nil {
		x.repair(t)
		check(t, a.Healthy(t.Context()))
		check(t, arrive(t.Context(), a))
		if n := value(a.Count(t.Context(), failed.Filter{}))(t).N; n != before+6 && n != before+7 {
			t.Errorf("got %d messages, want 6 or 7 more than %d", n, before) // a refused change may be in the restored file
		}
		return
	}
	_ = db.DB.Ping() // the pool may open a connection, and the connection creates a new file
	if err := arrive(t.Context(), a); err == nil {
		t.Error("archive accepts writes without another Open")
	}
	a = reopen()
	check(t, arrive(t.Context(), a))
	check(t, a.Healthy(t.Context()))
}

func openFile(t *testing.T, path string) database {
	t.Helper()
	return open(t, store.SQLite, "sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=busy_timeout(5000)")
}

// remove removes the files of a database as an operator would, with rm path*.
func remove(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(from+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			t.Fatal(err)
		}
	}
}

// The archive also detects a backup that was restored into the open file through SQL.
func TestArchiveDetectsRestoredBackup(t *testing.T) {
	dir := t.TempDir()
	path, backup := filepath.Join(dir, "test.db"), filepath.Join(dir, "backup.db")
	db := openFile(t, path)
	a := db.open(t)
	check(t, arrive(t.Context(), a))
	db.exec(t, `VACUUM INTO '`+backup+`'`)
	check(t, arrive(t.Context(), a))
	other := openFile(t, path)
	other.SetMaxOpenConns(1)
	other.exec(t, `ATTACH '`+backup+`' AS old`)
	for _, table := range []string{"counter", "message", "content"} {
		other.exec(t, fmt.Sprintf(`DELETE FROM main.%s%s; INSERT INTO main.%[1]s%[2]s SELECT * FROM old.%[1]s%[2]s`, "reprise_failed_", table))
	}
	if err := arrive(t.Context(), a); err == nil || !strings.Contains(err.Error(), "changes of this process are missing in the database: 1") {
		t.Errorf("Ingest: got error %v, want 1 missing change", err)
	}
}

// If PostgreSQL hangs at any point, the archive returns an error and does not hold its lock indefinitely. It
// continues when PostgreSQL responds again.
func TestArchiveReturnsWhilePostgresHangs(t *testing.T) {
	proxy := pgtest.NewProxy(t, pgtest.Schema(t))
	db := open(t, store.PostgreSQL, "pgx", proxy.URL)
	a := db.open(t)
	check(t, arrive(t.Context(), a))
	proxy.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.Healthy(ctx); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "timed out after ") {
		t.Errorf("Healthy: got error %v, want ErrUnavailable", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := arrive(ctx, a); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Ingest: got error %v, want ErrUnavailable", err)
	}
	proxy.Resume()
	check(t, a.Healthy(t.Context()))
	check(t, arrive(t.Context(), a))
}

// Healthy returns in time, even while another process writes.
func TestHealthyReturnsDuringWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	a := openFile(t, path).open(t)
	other := value(openFile(t, path).Conn(t.Context()))(t)
	defer other.Close()
	value(other.ExecContext(t.Context(), "BEGIN IMMEDIATE"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := arrive(ctx, a); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Ingest: got error %v, want ErrUnavailable", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- a.Healthy(ctx) }()
	testkit.Eventually(t, sqlkit.WriteLimit/2, func() bool { return len(answered) == 1 })
	if err := <-answered; !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Healthy: got error %v, want ErrUnavailable", err)
	}
	value(other.ExecContext(t.Context(), "ROLLBACK"))(t)
	check(t, a.Healthy(t.Context()))
}
