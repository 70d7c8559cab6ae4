package sqlkit

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/retry"
)

// Await calls open. While the database is unreachable, it calls open again, until ctx is canceled. The argument what is
// the role of the database, and name is its name in logs and errors.
func Await(ctx context.Context, log *slog.Logger, what, name string, open func() error) error {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := open()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !unreachable(err):
			return fmt.Errorf("cannot use the %s %s: %w", what, name, err)
		}
		log.Warn("cannot reach the "+what, "database", name, "error", err, "next_try", pause)
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// unreachable reports whether a PostgreSQL server does not respond, is not ready or lacks resources, or whether a SQLite
// file is locked. Other errors are permanent. https://www.postgresql.org/docs/current/errcodes-appendix.html
func unreachable(err error) bool {
	if code := sqliteCode(err); code != 0 {
		return code == 5 // SQLITE_BUSY
	}
	if state := sqlState(err); state != "" {
		return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "53")
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err) // a new certificate may solve it
	return untrusted || errors.Is(err, ErrUnavailable) || isUnavailable(err)
}

// FilePath returns the path of the file of an SQLite database, or "" if the database is in memory.
func FilePath(ctx context.Context, db *sql.DB) (path string, err error) {
	err = db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path)
	return path, err
}

// CheckFile returns an error if the file of an SQLite database is damaged. It reads the file, at about 2 s per GB, only
// if the write-ahead log is not empty, which means that the last process crashed or another process has the file open.
// If a backup is restored without deleting an old write-ahead log, SQLite combines the two without an error, and new
// messages could be lost. CheckFile detects most of these combinations, but not all.
func CheckFile(ctx context.Context, db *sql.DB, path string) error {
	if wal, err := os.Stat(path + "-wal"); err != nil || wal.Size() == 0 {
		return nil
	}
	var found string
	err := db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found)
	if sqliteCode(err) == 11 { // SQLITE_CORRUPT
		found, err = err.Error(), nil
	}
	if err != nil || found == "ok" {
		return err
	}
	return fmt.Errorf("file is damaged: %s (stop all processes that use the file, move %[2]s, %[2]s-wal and %[2]s-shm away, and restore a backup)",
		strings.Join(strings.Fields(found), " "), filepath.Base(path))
}
