package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise/idempotent"
)

// Duplicates configures deduplication: the store of processed messages, and its retention.
type Duplicates struct {
	idempotent.Config // without the Logger

	// Exactly one of Memory, SQLite and Postgres is set.
	Memory   bool
	SQLite   string // path of the database
	Postgres string // URL of the database

	At Position // position of the store, for startup errors
}

// Formats of a store.
const (
	storeMemory   = "memory"
	storeSQLite   = "sqlite:"
	storePostgres = "postgres://user:password@host/database"
)

// duplicates reads the configuration of deduplication.
func (v value) duplicates() (*Duplicates, bool) {
	d := &Duplicates{}
	v.short("duplicates", "store", "sqlite:duplicates.db", func(x value) {
		d.At = x.at
		if d.Memory = x.plain() == storeMemory; d.Memory {
			return
		}
		s, _ := x.store("sqlite:duplicates.db", storeMemory)
		if path, ok := strings.CutPrefix(s, storeSQLite); ok {
			d.SQLite = path
		} else {
			d.Postgres = s
		}
	}, func(f *fields) {
		read(f, "keep", &d.Retention, duration(time.Second))
		read(f, "lease", &d.Lease, duration(time.Second))
		read(f, "key", &d.Key, value.key)
		read(f, "keyless", &d.Keyless, choose(is("park", idempotent.ParkKeyless), is("handle", idempotent.HandleKeyless)))
	})
	return d, true
}

// store reads sqlite:PATH or the URL of a PostgreSQL database. It makes the path absolute. The parameter others
// contains values that the caller also accepts, for the error. Errors never contain the URL, which may contain a
// password.
func (v value) store(example string, others ...string) (string, bool) {
	s, ok := v.text(example)
	path, sqlite := strings.CutPrefix(s, storeSQLite)
	switch {
	case !ok:
		return "", false
	case sqlite:
		return v.sqlite(path, oneOfThese(append([]string{example}, others...)))
	case strings.HasPrefix(s, "postgres:") || strings.HasPrefix(s, "postgresql:"):
		return v.postgresURL()
	}
	return "", v.fail("%s is not a supported store; write %s", v.name, oneOfThese(append(others, storeSQLite+"PATH", storePostgres)))
}

func (v value) sqlite(path, examples string) (string, bool) {
	switch {
	case path == "" || path == ":memory:":
		return "", v.fail("%s must have a file; write %s", v.name, examples)
	case strings.HasPrefix(path, "//"):
		return "", v.fail("%s is not a URL; write sqlite: and the path, such as sqlite:duplicates.db or sqlite:/var/lib/duplicates.db", v.name)
	case strings.ContainsRune(path, 0):
		return "", v.fail("%s contains a NUL character: remove it", v.name)
	}
	path, ok := v.absolute(path)
	return storeSQLite + path, ok
}

func (v value) postgresURL() (string, bool) {
	s, ok := v.address(storePostgres)
	if !ok {
		return "", false
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", v.fail("%s is not a URL; write %s, with special characters of the password percent-encoded (@ is %%40, / is %%2F)", v.name, storePostgres)
	case u.Scheme != "postgres" && u.Scheme != "postgresql":
		return "", v.fail("%s must start with postgres://; write %s", v.name, storePostgres)
	case strings.Trim(u.Path, "/") == "":
		return "", v.fail("%s must have a database; write %s", v.name, storePostgres)
	case u.Query().Get("sslrootcert") == "system": // not a path
		return v.files(s, "sslcert", "sslkey", "passfile", "servicefile")
	}
	return v.files(s, "sslrootcert", "sslcert", "sslkey", "passfile", "servicefile")
}
