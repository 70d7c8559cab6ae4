// Package database opens SQLite files, and PostgreSQL and MySQL databases.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// DB is a SQLite file, or a PostgreSQL or MySQL database.
type DB struct {
	*sql.DB
	Dialect sqlkit.Dialect
	Name    string // without a password
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
	db, err := openFile(path, "&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, err
	}
	return &DB{db, sqlkit.SQLite, path}, nil
}

func openFile(path, parameters string) (*sql.DB, error) {
	// mode=rw: private creates the file. A new connection must not create it again after it was deleted.
	u := url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(5000)&mode=rw" + parameters}
	db, err := sql.Open("sqlite", u.String())
	if err == nil {
		db.SetMaxOpenConns(maxConnections)
	}
	return db, err
}

// OpenPostgres returns the PostgreSQL database at a URL. It does not connect.
func OpenPostgres(rawURL string) (*DB, error) {
	c, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the URL of the database: %w", err) // pgx does not show the password
	}
	db := pooled(stdlib.OpenDB(*c))
	return &DB{db, sqlkit.PostgreSQL, fmt.Sprintf("postgres://%s:%d/%s", c.Host, c.Port, c.Database)}, nil
}

// OpenMySQL returns the MySQL or MariaDB database at a URL. Its parameters are those of the driver, and socket is the path of a Unix
// socket. It does not connect.
func OpenMySQL(rawURL string) (*DB, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("cannot parse the URL of the database") // the error contains the password
	}
	parameters := u.Query()
	socket := parameters.Get("socket")
	parameters.Del("socket")
	cfg, err := mysql.ParseDSN("/?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("cannot parse the parameters of the database: %w", err)
	}
	cfg.User, cfg.DBName = u.User.Username(), strings.Trim(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	if socket != "" {
		cfg.Net, cfg.Addr = "unix", socket
	}
	cfg.Logger = &mysql.NopLogger{} // errors are returned, too
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the URL of the database: %w", err)
	}
	return &DB{pooled(sql.OpenDB(connector)), sqlkit.MySQL, fmt.Sprintf("mysql://%s/%s", cfg.Addr, cfg.DBName)}, nil
}

func pooled(db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db
}

// CreateFile creates the file of a new database with permissions for the current user only, because messages and their IDs
// may contain secrets. SQLite uses the same permissions for its additional files. If the creation fails, SQLite reports
// the reason later. private does not open an existing file, because closing it would release the locks of all
// connections of this process.
func (x *DB) CreateFile() {
	if x.Dialect != sqlkit.SQLite {
		return
	}
	if f, err := os.OpenFile(x.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// CheckFile returns an error if the SQLite file is damaged.
func (x *DB) CheckFile(ctx context.Context) error {
	if x.Dialect != sqlkit.SQLite {
		return nil
	}
	return sqlkit.CheckFile(ctx, x.DB, x.Name)
}

// Writable returns an error if this process may not write the SQLite file, or create files in its directory, as SQLite does. Call it
// before the first statement, because closing a file releases its locks.
func (x *DB) Writable() error {
	if x.Dialect != sqlkit.SQLite {
		return nil
	}
	probe, err := os.CreateTemp(filepath.Dir(x.Name), ".reprise-check-*")
	if err != nil {
		return fmt.Errorf("directory %s must be writable, because SQLite creates files in it: %w", filepath.Dir(x.Name), errors.Unwrap(err))
	}
	_ = probe.Close() // empty
	if err := os.Remove(probe.Name()); err != nil {
		return err
	}
	f, err := os.OpenFile(x.Name, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // created later
	case err != nil:
		return fmt.Errorf("file %s must be writable: %w", x.Name, errors.Unwrap(err))
	}
	return f.Close()
}

// Check calls f with the database, unless it is an SQLite file that does not exist. In an SQLite file, the connections of f
// change nothing by themselves, and Check returns an error if the file is damaged.
func (x *DB) Check(ctx context.Context, f func(*sql.DB) error) error {
	if x.Dialect != sqlkit.SQLite {
		return f(x.DB)
	}
	if _, err := os.Stat(x.Name); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := openFile(x.Name, "") // keeps the journal mode
	if err != nil {
		return err
	}
	defer db.Close()
	if err := sqlkit.CheckFile(ctx, db, x.Name); err != nil {
		return err
	}
	return f(db)
}

// DefaultArchive is the default database of the message archive.
const DefaultArchive = "sqlite:reprise-failed.db"

// OpenArchive returns the database at sqlite:PATH or postgres://…. It does not connect.
func OpenArchive(place string) (*DB, error) {
	return open("archive", place, DefaultArchive)
}

// OpenOutbox returns the database at sqlite:PATH, postgres://… or mysql://…. It does not connect.
func OpenOutbox(place string) (*DB, error) {
	if strings.HasPrefix(place, "mysql://") {
		return OpenMySQL(place)
	}
	return open("outbox", place, "sqlite:outbox.db", "mysql://user:password@host/database")
}

func open(what, place, example string, others ...string) (*DB, error) {
	path, sqlite := strings.CutPrefix(place, "sqlite:")
	switch {
	case sqlite && (path == "" || path == ":memory:" || strings.HasPrefix(path, "//")):
		return nil, fmt.Errorf("sqlite: must have the path of a file (example: %s)", example)
	case sqlite:
		return OpenSQLite(filepath.Clean(path))
	case !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://"):
		forms := strings.Join(append([]string{"sqlite:PATH", "postgres://user:password@host/database"}, others...), " or ")
		return nil, fmt.Errorf("%s must be %s (example: %s)", what, forms, example)
	}
	return OpenPostgres(place)
}
