package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// database is a SQLite file or a PostgreSQL database.
type database struct {
	*sql.DB
	postgres bool
	name     string // without a password
}

// maxConnections limits the connections to a database. It is sufficient because statements are short.
const maxConnections = 16

func openSQLite(path string) (*database, error) {
	if info, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("directory %s not found (create it, or use another path for the database)", filepath.Dir(path))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	return &database{db, false, path}, nil
}

func openPostgres(rawURL string) (*database, error) {
	c, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the URL of the database: %w", err) // pgx does not show the password
	}
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return &database{db, true, fmt.Sprintf("postgres://%s:%d/%s", c.Host, c.Port, c.Database)}, nil
}

// private creates the file of a new database with permissions for the current user only, because messages and their IDs
// may contain secrets. SQLite uses the same permissions for its additional files. If the creation fails, SQLite reports
// the reason later. private does not open an existing file, because closing it would release the locks of all
// connections of this process.
func (x *database) private() {
	if x.postgres {
		return
	}
	if f, err := os.OpenFile(x.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// checkFile returns an error if the SQLite file is damaged. It reads the file, at about 2 s per GB, only if the
// write-ahead log is not empty, which means that the last process crashed or another process has the file open. If a
// backup is restored without deleting an old write-ahead log, SQLite combines the two without an error, and new
// messages could be lost. checkFile detects most of these combinations, but not all.
func (x *database) checkFile(ctx context.Context) error {
	if x.postgres {
		return nil
	}
	if wal, err := os.Stat(x.name + "-wal"); err != nil || wal.Size() == 0 {
		return nil
	}
	var found string
	err := x.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found)
	if dbErr, ok := errors.AsType[*sqlite.Error](err); ok && dbErr.Code()&0xff == 11 { // SQLITE_CORRUPT
		found, err = dbErr.Error(), nil
	}
	if err != nil || found == "ok" {
		return err
	}
	return fmt.Errorf("file is damaged: %s (stop all processes that use the file, move %[2]s, %[2]s-wal and %[2]s-shm away, and restore a backup)",
		strings.Join(strings.Fields(found), " "), filepath.Base(x.name))
}

// await calls open. While the database is unreachable, it calls open again, until ctx is canceled.
func (x *database) await(ctx context.Context, log *slog.Logger, what string, open func() error) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := open()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !unreachable(err):
			return fmt.Errorf("cannot use the %s %s: %w", what, x.name, err)
		}
		log.Warn("cannot reach the "+what, "database", x.name, "error", err, "next_try", pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// unreachable reports whether a PostgreSQL server does not respond, is not ready or lacks resources, or whether a
// SQLite file is locked. Other errors are permanent. https://www.postgresql.org/docs/current/errcodes-appendix.html
func unreachable(err error) bool {
	if dbErr, ok := errors.AsType[*sqlite.Error](err); ok {
		return dbErr.Code()&0xff == 5 // SQLITE_BUSY
	}
	if dbErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(dbErr.Code, "57P") || strings.HasPrefix(dbErr.Code, "53")
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, failed.ErrUnavailable)
}
