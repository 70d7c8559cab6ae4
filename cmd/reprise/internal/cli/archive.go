package cli

import (
	"fmt"
	"path/filepath"
	"strings"
)

// defaultArchive is the default database of the message archive.
const defaultArchive = "sqlite:reprise-failed.db"

// openArchiveDB returns the database at sqlite:PATH or postgres://…. It does not connect.
func openArchiveDB(place string) (*database, error) {
	path, sqlite := strings.CutPrefix(place, "sqlite:")
	switch {
	case sqlite && (path == "" || path == ":memory:" || strings.HasPrefix(path, "//")):
		return nil, fmt.Errorf("sqlite: must have the path of a file (example: %s)", defaultArchive)
	case sqlite:
		return openSQLite(filepath.Clean(path))
	case !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://"):
		return nil, fmt.Errorf("archive must be sqlite:PATH or postgres://user:password@host/database (example: %s)", defaultArchive)
	}
	return openPostgres(place)
}
