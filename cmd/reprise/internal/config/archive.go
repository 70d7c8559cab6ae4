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

// archive reads a store, or a mapping with one.
func (v value) archive() *Archive {
	a := &Archive{}
	if v.kind() != "a mapping" {
		v.archiveStore(a)
		return a
	}
	f, ok := v.fields("archive")
	if !ok {
		return a
	}
	defer f.finish()
	if x, ok := f.get("store"); ok {
		x.archiveStore(a)
	} else {
		f.missing("archive has no store: add store: "+exampleArchive, "store")
	}
	if x, ok := f.get("keep"); ok {
		a.Retention, _ = x.duration(time.Hour)
	}
	if x, ok := f.get("redact"); ok {
		a.Redact = x.redact()
	}
	if x, ok := f.get("queues"); ok {
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
	}
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

// redact reads what is secret in messages.
func (v value) redact() []failed.Rule {
	items, _ := v.items("a list: [{header: NAME}, {path: card.number}]")
	var rules []failed.Rule
	for _, item := range items {
		f, ok := item.fields("a rule of redact")
		if !ok {
			continue
		}
		var r failed.Rule
		header, named := f.get("header")
		if named {
			r.Header, _ = header.text("authorization")
		}
		path, found := f.get("path")
		if found {
			r.Path, _ = path.text("card.number")
		}
		switch {
		case named && found:
			f.fail("a rule of redact is for a header or for a path: make two of it")
		case !named && !found:
			f.missing("a rule of redact names nothing: write header: NAME, or path: card.number", "header", "path")
		}
		f.finish()
		rules = append(rules, r)
	}
	return rules
}

// console reads an address, or a mapping with one. Whether others may reach it is up to
// the tokens, which are known later.
func (v value) console(embedded bool) *Console {
	c := &Console{Listen: DefaultConsole, At: v.at}
	if v.kind() != "a mapping" {
		c.Listen = v.openAddr(DefaultConsole)
		return c
	}
	f, ok := v.fields("console")
	if !ok {
		return c
	}
	defer f.finish()
	if x, ok := f.get("listen"); ok {
		c.Listen, c.At = x.openAddr(DefaultConsole), x.at
	}
	if x, ok := f.get("tokens"); ok {
		c.Tokens = x.filePath("tokens")
	}
	if x, ok := f.get("secure"); ok {
		c.Secure = x.yes()
	}
	x, given := f.get("management")
	switch {
	case given && embedded:
		x.fail("management is that of a RabbitMQ, and the broker in this process is asked anyway: remove it")
	case given:
		c.Management, _ = x.endpoint()
	}
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
