package config

import (
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Archive is where failed messages are kept.
type Archive struct {
	failed.Config // Redact and Retention alone

	Store  string   // sqlite:PATH or the URL of a PostgreSQL
	Queues []string // failed queues besides those of the workers

	At Position // of the store, for what only a start can tell
}

// Console is where people work on what is in the archive.
type Console struct {
	Listen     string // host:port
	Tokens     string // path of the file of those who may; "": everybody on this machine
	Management string // URL of the broker's management API; "": none
	Secure     bool   // browsers come by HTTPS, through a proxy

	At Position // of the address, for what only a start can tell
}

// DefaultConsole is where a console listens.
const DefaultConsole = "127.0.0.1:15600"

const exampleArchive = storeSQLite + "reprise-failed.db"

// desk reads the archive and its console.
func (f *fields) desk(c *Config, embedded bool) {
	archive, kept := f.get("archive")
	if kept {
		c.Archive = archive.archive()
	}
	console, shown := f.get("console")
	if !shown {
		return
	}
	c.Console = console.console(embedded)
	if !kept {
		f.missing("a console shows an archive, and there is none: add archive: "+exampleArchive, "archive")
	}
}

// archive reads a store.
func (v value) archive() *Archive {
	a := &Archive{}
	v.short("archive", "store", exampleArchive, func(x value) { x.archiveStore(a) }, func(f *fields) {
		f.durationInto("keep", &a.Retention, time.Hour)
		f.read("redact", func(x value) { a.Redact = x.redact() })
		f.read("queues", func(x value) {
			items, _ := x.items("a list of failed queues: [legacy.failed]")
			for _, item := range items {
				name, ok := item.amqpName("legacy.failed", 0)
				switch {
				case !ok:
				case slices.Contains(a.Queues, name):
					item.fail("queue %s is there twice: keep one", quoted(name))
				default:
					a.Queues = append(a.Queues, name)
				}
			}
		})
	})
	return a
}

// archiveStore reads sqlite:PATH or the URL of a PostgreSQL.
func (v value) archiveStore(a *Archive) {
	a.At = v.at
	s, ok := v.text(exampleArchive)
	if !ok {
		return
	}
	path, sqlite := strings.CutPrefix(s, storeSQLite)
	switch {
	case sqlite:
		if path = v.sqlitePath(path); path != "" {
			a.Store = storeSQLite + path
		}
	case strings.HasPrefix(s, "postgres:") || strings.HasPrefix(s, "postgresql:") || strings.HasPrefix(s, "${"):
		a.Store = v.postgresURL(s)
	default:
		v.fail("%s is none of the archives there are: write %sPATH or %s", v.name, storeSQLite, storePostgres)
	}
}

// redact reads the secret parts of messages.
func (v value) redact() []failed.Rule {
	items, _ := v.items("a list: [{header: NAME}, {path: card.number}]")
	var rules []failed.Rule
	for _, item := range items {
		item.mapping("a rule of redact", func(f *fields) {
			var r failed.Rule
			named := f.read("header", func(x value) { r.Header, _ = x.text("authorization") })
			found := f.read("path", func(x value) { r.Path, _ = x.text("card.number") })
			switch {
			case named && found:
				f.fail("a rule of redact is for a header or for a path: make two of it")
			case !named && !found:
				f.missing("a rule of redact names nothing: write header: NAME, or path: card.number", "header", "path")
			}
			rules = append(rules, r)
		})
	}
	return rules
}

// console reads an address, or a mapping with one. The tokens, which are known later,
// decide whether others may reach it.
func (v value) console(embedded bool) *Console {
	c := &Console{Listen: DefaultConsole, At: v.at}
	if v.kind() != "a mapping" {
		c.Listen = v.openAddr(DefaultConsole)
		return c
	}
	v.mapping("console", func(f *fields) {
		f.read("listen", func(x value) { c.Listen, c.At = x.openAddr(DefaultConsole), x.at })
		f.read("tokens", func(x value) { c.Tokens = x.filePath("tokens") })
		f.read("secure", func(x value) { c.Secure = x.yes() })
		f.read("management", func(x value) {
			if embedded {
				x.fail("management is that of a RabbitMQ, and the broker in this process is asked anyway: remove it")
			} else {
				c.Management, _ = x.endpoint()
			}
		})
	})
	return c
}

// yes reads true or false.
func (v value) yes() bool {
	switch s, _ := v.word(); s {
	case "true":
		return true
	case "false":
	default:
		v.fail("%s is neither true nor false: write one of the two", v.name)
	}
	return false
}
