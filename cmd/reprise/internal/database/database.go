// Package database opens SQLite files and PostgreSQL databases.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// DB is a SQLite file or a PostgreSQL database.
type DB struct {
	*sql.DB
	Postgres bool
	Name     string // without a password
}

// maxConnections limits the connections to a database. It is sufficient because statements are short.
const maxConnections = 16

// OpenSQLite returns the SQLite file at a path. It does not connect.
func OpenSQLite(path string) (*DB, error) {
	if info, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, fmt.Errorf("directory %s not found (create it, or use another path for the database)", filepath.Dir(path))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// mode=rw: private creates the file. A new connection must not create it again after it was deleted.
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&mode=rw"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	return &DB{db, false, path}, nil
}

// OpenPostgres returns the PostgreSQL database at a URL. It does not connect.
func OpenPostgres(rawURL string) (*DB, error) {
	c, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the URL of the database: %w", err) // pgx does not show the password
	}
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return &DB{db, true, fmt.Sprintf("postgres://%s:%d/%s", c.Host, c.Port, c.Database)}, nil
}

// CreateFile creates the file of a new database with permissions for the current user only, because messages and their IDs
// may contain secrets. SQLite uses the same permissions for its additional files. If the creation fails, SQLite reports
// the reason later. private does not open an existing file, because closing it would release the locks of all
// connections of this process.
func (x *DB) CreateFile() {
	if x.Postgres {
		return
	}
	if f, err := os.OpenFile(x.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// CheckFile returns an error if the SQLite file is damaged.
func (x *DB) CheckFile(ctx context.Context) error {
	if x.Postgres {
		return nil
	}
	return sqlkit.CheckFile(ctx, x.DB, x.Name)
}

// DefaultArchive is the default database of the message archive.
const DefaultArchive = "sqlite:reprise-failed.db"

// OpenArchive returns the database at sqlite:PATH or postgres://…. It does not connect.
func OpenArchive(place string) (*DB, error) {
	path, sqlite := strings.CutPrefix(place, "sqlite:")
	switch {
	case sqlite && (path == "" || path == ":memory:" || strings.HasPrefix(path, "//")):
		return nil, fmt.Errorf("sqlite: must have the path of a file (example: %s)", DefaultArchive)
	case sqlite:
		return OpenSQLite(filepath.Clean(path))
	case !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://"):
		return nil, fmt.Errorf("archive must be sqlite:PATH or postgres://user:password@host/database (example: %s)", DefaultArchive)
	}
	return OpenPostgres(place)
}
