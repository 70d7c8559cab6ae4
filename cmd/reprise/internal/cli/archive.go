package cli

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// defaultArchive is the default database of the message archive.
const defaultArchive = "sqlite:reprise-failed.db"

// archiveDB is the database of an archive.
type archiveDB struct {
	*database
	dialect failed.Dialect
}

// openArchiveDB returns the database at sqlite:PATH or postgres://…. It does not connect.
func openArchiveDB(place string) (*archiveDB, error) {
	path, sqlite := strings.CutPrefix(place, "sqlite:")
	switch {
	case sqlite && (path == "" || path == ":memory:" || strings.HasPrefix(path, "//")):
		return nil, fmt.Errorf("sqlite: must have the path of a file (example: %s)", defaultArchive)
	case sqlite:
		db, err := openSQLite(filepath.Clean(path))
		return &archiveDB{db, failed.SQLite}, err
	case !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://"):
		return nil, fmt.Errorf("archive must be sqlite:PATH or postgres://user:password@host/database (example: %s)", defaultArchive)
	}
	db, err := openPostgres(place)
	return &archiveDB{db, failed.PostgreSQL}, err
}

// open returns the archive. It waits for an unreachable database until ctx is canceled. It returns an error if the file is
// damaged.
func (x *archiveDB) open(ctx context.Context, cfg failed.Config, log *slog.Logger) (*failed.Archive, error) {
	cfg.Dialect, cfg.Logger = x.dialect, log
	x.private()
	var archive *failed.Archive
	err := x.await(ctx, log, "archive", func() (err error) {
		if err = x.checkFile(ctx); err == nil {
			archive, err = failed.Open(ctx, x.DB, cfg)
		}
		return err
	})
	return archive, err
}

// purging is the interval at which the archive removes messages older than the retention.
const purging = time.Hour

// purge removes messages older than the retention until ctx is canceled.
func purge(ctx context.Context, a *failed.Archive, log *slog.Logger) {
	for {
		if _, err := a.Purge(ctx, "policy:retention"); err != nil && ctx.Err() == nil {
			log.Error("cannot remove messages that exceed the retention", "error", err, "next_try", purging)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(purging):
		}
	}
}
