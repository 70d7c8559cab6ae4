package config

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/idempotent"
)

// Duplicates is where and for how long a worker remembers what is done, so that
// it does it once.
type Duplicates struct {
	idempotent.Config // all but the Logger

	// One of the three is set.
	Memory   bool
	SQLite   string // path of the database
	Postgres string // URL of the database

	At Position // of the store, for what only a start can tell
}

// Forms of a store.
const (
	storeMemory   = "memory"
	storeSQLite   = "sqlite:"
	storePostgres = "postgres://user:password@host/database"
)

// duplicates reads a store.
func (v value) duplicates() *Duplicates {
	d := &Duplicates{}
	v.short("duplicates", "store", "sqlite:duplicates.db", func(x value) { x.store(d) }, func(f *fields) {
		f.durationInto("keep", &d.Retention, time.Second)
		f.durationInto("lease", &d.Lease, time.Second)
		f.read("key", func(x value) { d.Key = x.key() })
		f.read("keyless", func(x value) {
			if s, _ := x.oneOf("park", "handle"); s == "handle" {
				d.Keyless = idempotent.HandleKeyless
			}
		})
	})
	return d
}

// store reads memory, sqlite:PATH or the URL of a PostgreSQL. The text of a URL
// never appears in a message: it holds a password.
func (v value) store(d *Duplicates) {
	d.At = v.at
	s, ok := v.text(storeSQLite + "duplicates.db")
	if !ok {
		return
	}
	path, sqlite := strings.CutPrefix(s, storeSQLite)
	switch {
	case s == storeMemory:
		d.Memory = true
	case sqlite:
		d.SQLite = v.sqlitePath(path)
	case strings.HasPrefix(s, "postgres:") || strings.HasPrefix(s, "postgresql:") || strings.HasPrefix(s, "${"):
		d.Postgres = v.postgresURL(s)
	default:
		v.fail("%s is none of the stores there are: write %s, %sPATH or %s", v.name, storeMemory, storeSQLite, storePostgres)
	}
}

func (v value) sqlitePath(path string) string {
	switch {
	case path == "" || path == ":memory:":
		v.fail("%s names no file: write sqlite:duplicates.db, or memory for none", v.name)
	case strings.HasPrefix(path, "~") || strings.Contains(path, "${"):
		v.fail("~ and variables stand for nothing in a path: write it from the root or from where this file is")
	case strings.HasPrefix(path, "//"):
		v.fail("%s is no URL: write sqlite: and the path, such as sqlite:duplicates.db or sqlite:/var/lib/duplicates.db", v.name)
	case strings.ContainsRune(path, 0):
		v.fail("%s has a NUL character in it: remove it", v.name)
	case filepath.IsAbs(path):
		return path
	default:
		return filepath.Join(v.dir, path)
	}
	return ""
}

func (v value) postgresURL(s string) string {
	s, ok := v.expand(s)
	if !ok {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		v.fail("%s is no URL: write %s, with special characters of the password percent-encoded (@ is %%40, / is %%2F)", v.name, storePostgres)
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		v.fail("%s does not begin with postgres://: write %s", v.name, storePostgres)
	case strings.Trim(u.Path, "/") == "":
		v.fail("%s names no database: write %s", v.name, storePostgres)
	default:
		return s
	}
	return ""
}
