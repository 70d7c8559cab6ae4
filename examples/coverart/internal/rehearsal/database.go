package rehearsal

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed" // releases.sql
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

//go:embed releases.sql
var releasesSQL string

// tidyUp limits the duration of the cleanup after the context is done.
const tidyUp = 10 * time.Second

// NewDatabase creates a database on the PostgreSQL server at address, with coverart.Schema and a few releases. The
// function remove closes and deletes the database. The caller must register the driver "pgx".
//
// The database is separate, because its schemas have the same names as the schemas of MusicBrainz.
func NewDatabase(ctx context.Context, address string) (db *sql.DB, remove func() error, err error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// The error of url.Parse could contain the password.
		return nil, nil, errors.New("rehearsal: PostgreSQL address must be a URL (example: postgres://user:password@host/database)")
	}
	server, err := sql.Open("pgx", u.String())
	if err != nil {
		return nil, nil, fmt.Errorf("rehearsal: cannot open PostgreSQL: %w", err)
	}
	name := "reprise_coverart_" + strings.ToLower(rand.Text())
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rehearsal: cannot create PostgreSQL database: %w", err), server.Close())
	}
	u.Path = "/" + name
	db, err = sql.Open("pgx", u.String())
	remove = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), tidyUp)
		defer cancel()
		var errs []error
		if db != nil {
			errs = append(errs, db.Close())
		}
		if _, err := server.ExecContext(ctx, "DROP DATABASE "+name); err != nil {
			errs = append(errs, fmt.Errorf("rehearsal: cannot drop PostgreSQL database %s: %w", name, err))
		}
		return errors.Join(append(errs, server.Close())...)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, coverart.Schema+releasesSQL)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("rehearsal: cannot fill PostgreSQL database: %w", err), remove())
	}
	return db, remove, nil
}
