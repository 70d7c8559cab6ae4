package cli

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// defaultArchive is where failed messages are kept if nothing is said.
const defaultArchive = "sqlite:reprise-failed.db"

// archiveDB is the database of an archive.
type archiveDB struct {
	*database
	dialect failed.Dialect
}

// openArchiveDB returns the database that sqlite:PATH or postgres://… names. It
// connects to nothing.
func openArchiveDB(place string) (*archiveDB, error) {
	path, sqlite := strings.CutPrefix(place, "sqlite:")
	switch {
	case sqlite && (path == "" || path == ":memory:" || strings.HasPrefix(path, "//")):
		return nil, fmt.Errorf("an archive is a file: write sqlite: and its path, such as %s", defaultArchive)
	case sqlite:
		db, err := openSQLite(filepath.Clean(path))
		return &archiveDB{db, failed.SQLite}, err
	case !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://"):
		return nil, fmt.Errorf("there is no such archive: write sqlite:PATH, such as %s, or postgres://user:password@host/database", defaultArchive)
	}
	db, err := openPostgres(place)
	return &archiveDB{db, failed.PostgreSQL}, err
}

// open returns the archive. It waits for a database that cannot be reached, until
// ctx ends.
func (x *archiveDB) open(ctx context.Context, cfg failed.Config, log *slog.Logger) (*failed.Archive, error) {
	cfg.Dialect, cfg.Logger = x.dialect, log
	x.private()
	var archive *failed.Archive
	err := x.await(ctx, log, "archive", func() (err error) {
		archive, err = failed.Open(ctx, x.DB, cfg)
		return err
	})
	return archive, err
}

// purging is how often what is older than the retention is removed.
const purging = time.Hour

// purge removes it until ctx ends.
func purge(ctx context.Context, a *failed.Archive, log *slog.Logger) {
	for {
		if _, err := a.Purge(ctx, "policy:retention"); err != nil && ctx.Err() == nil {
			log.Error("what is too old cannot be removed from the archive", "error", err, "next_try", purging)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(purging):
		}
	}
}
