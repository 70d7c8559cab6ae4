package cli

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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite" // the driver "sqlite"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/idempotent"
)

// database is a store in a database. Workers that name the same one share it.
type database struct {
	*idempotent.SQL
	db    *sql.DB
	place string // path or URL
	name  string // the same without a password
}

// maxConnections is how many a PostgreSQL is asked for at once: a statement of a
// store takes a moment.
const maxConnections = 16

func openSQLite(path string) (*database, error) {
	db, name, err := sqliteDB(path)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // there is one writer at a time; whoever waits, waits here
	return newDatabase(db, idempotent.SQLite, name)
}

// sqliteDB returns a file as a database, and its whole path.
func sqliteDB(path string) (*sql.DB, string, error) {
	if info, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, "", fmt.Errorf("there is no directory %s for the database: make it, or write another path", filepath.Dir(path))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"}
	db, err := sql.Open("sqlite", u.String())
	return db, path, err
}

func openPostgres(rawURL string) (*database, error) {
	db, name, err := postgresDB(rawURL)
	if err != nil {
		return nil, err
	}
	return newDatabase(db, idempotent.PostgreSQL, name)
}

// postgresDB returns the database of a URL, and its name without a password.
func postgresDB(rawURL string) (*sql.DB, string, error) {
	c, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, "", fmt.Errorf("the URL of the database makes no sense: %w", err) // pgx shows no password
	}
	db := stdlib.OpenDB(*c)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, fmt.Sprintf("postgres://%s:%d/%s", c.Host, c.Port, c.Database), nil
}

func newDatabase(db *sql.DB, dialect idempotent.Dialect, name string) (*database, error) {
	s, err := idempotent.NewSQL(db, idempotent.SQLConfig{Dialect: dialect})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &database{SQL: s, db: db, name: name}, nil
}

func (x *database) migrate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return x.Migrate(ctx)
}

// unreachable reports whether a PostgreSQL has not said anything yet, or that it is
// not ready, or whether a file is locked. What else it says will not change by itself.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func unreachable(err error) bool {
	if said, ok := errors.AsType[*sqlite.Error](err); ok {
		return said.Code()&0xff == 5 // SQLITE_BUSY
	}
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(said.Code, "57P") || strings.HasPrefix(said.Code, "53")
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	return errors.Is(err, failed.ErrUnavailable)
}
