package config

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// Archive configures the message archive.
type Archive struct {
	store.Config // only Redact, Columns, Groups, Retention and Rules

	Store  string   // sqlite:PATH, or the URL of a PostgreSQL database
	Queues []string // failed queues in addition to the queues of the workers

	At Position // position of the store, for startup errors
}

// Console configures the console of the archive.
type Console struct {
	Listen     string // host:port
	Tokens     string // path of the token file; "": all local users
	Management string // URL of the broker's management API; "": none
	Secure     bool   // HTTPS through a proxy
	Prefix     string // path prefix of its URLs; "": none
	URL        string // external URL; "": the listening address
	TraceURL   string // URL of a trace, with {trace_id}; "": no links

	At Position // position of the address, for startup errors
}

// DefaultConsole is the default listening address of a console.
const DefaultConsole = "127.0.0.1:15600"

const exampleArchive = storeSQLite + "reprise-failed.db"

// archiveAndConsole reads the keys archive, console and notify.
func (f *fields) archiveAndConsole(c *Config, embedded bool) {
	kept := read(f, "archive", &c.Archive, value.archive)
	shown := f.with("console", func(x value) { c.Console = x.console(embedded) })
	if shown && !kept {
		f.missing("console requires an archive: add archive: "+exampleArchive, "archive")
	}
	if !read(f, "notify", &c.Notify, value.notify) {
		return
	}
	if !kept {
		f.missing("notify requires an archive: add archive: "+exampleArchive, "archive")
	} else if !shown {
		f.missing("notify requires a console for its links: add console: "+DefaultConsole, "console")
	}
}

// archive reads the configuration of the archive.
func (v value) archive() (*Archive, bool) {
	a := &Archive{}
	v.short("archive", "store", exampleArchive, func(x value) {
		a.At = x.at
		a.Store, _ = x.store(exampleArchive)
	}, func(f *fields) {
		read(f, "keep", &a.Retention, duration(time.Hour))
		read(f, "retention", &a.Rules, list("a list such as [{queue: payments, keep: 30d}]", mapping("a retention", (*fields).retention)))
		read(f, "redact", &a.Redact, list("a list such as [{header: NAME}, {path: card.number}]", mapping("a rule of redact", (*fields).redact)))
		read(f, "columns", &a.Columns, list("a list such as [{path: order_id}, {header: NAME}]", mapping("a rule of columns", (*fields).column)))
		read(f, "groups", &a.Groups, list("a list such as [{error: 'no funds', name: no funds}]", mapping("a rule of groups", (*fields).group)))
		f.with("queues", func(x value) {
			for _, item := range x.items("a list of failed queues such as [legacy.failed]") {
				name, ok := amqpName("legacy.failed", 0)(item)
				if slices.Contains(a.Queues, name) {
					item.fail("queue %s is listed twice: keep one", brief.Quoted(name))
				} else if ok {
					a.Queues = append(a.Queues, name)
				}
			}
		})
	})
	return a, true
}

// redact reads a rule that identifies a secret part of messages.
func (f *fields) redact(r *failed.Rule) { f.part("redact", r) }

// column reads a rule that selects a value for lists of messages.
func (f *fields) column(r *failed.Rule) { f.part("columns", r) }

func (f *fields) part(list string, r *failed.Rule) {
	header := read(f, "header", &r.Header, text("authorization"))
	path := read(f, "path", &r.Path, text("card.number"))
	switch {
	case header && path:
		f.fail("a rule of %s must have a header or a path, not both; write two rules", list)
	case !header && !path:
		f.missing("a rule of "+list+" needs a header or a path; write header: NAME, or path: card.number", "header", "path")
	}
}

// group reads a rule that names a group of failures.
func (f *fields) group(r *store.GroupRule) {
	read(f, "queue", &r.Queue, amqpName("payments", 0))
	if !read(f, "error", &r.Error, func(v value) (*regexp.Regexp, bool) {
		written, ok := v.text("card (expired|blocked)")
		if !ok {
			return nil, false
		}
		expression, err := regexp.Compile(written)
		if err != nil {
			return nil, v.fail("error must be a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		return expression, true
	}) {
		f.missing("a rule of groups needs a regular expression; write error: 'card (expired|blocked)'", "error")
	}
	if !read(f, "name", &r.Name, text("card $1")) {
		f.missing("a rule of groups needs a name; write name: card $1", "name")
	}
}

// retention reads the retention time for the messages of a work queue.
func (f *fields) retention(r *store.RetentionRule) {
	if !read(f, "queue", &r.Queue, amqpName("payments", 0)) {
		f.missing("a retention needs a work queue; write queue: NAME", "queue")
	}
	if !read(f, "keep", &r.Retention, duration(time.Hour)) {
		f.missing("a retention needs a time; write keep: 30d", "keep")
	}
}

// console reads an address, or a mapping with an address. It does not check for access from other machines, because
// access depends on the tokens, which are read later.
func (v value) console(embedded bool) *Console {
	c := &Console{Listen: DefaultConsole, At: v.at}
	listen := func(x value) {
		c.At = x.at
		c.Listen, _ = openAddr(DefaultConsole)(x)
	}
	if !v.isMapping() {
		listen(v)
		return c
	}
	f, _ := v.fields("console")
	f.with("listen", listen)
	read(f, "tokens", &c.Tokens, path("tokens"))
	read(f, "secure", &c.Secure, value.boolean)
	read(f, "prefix", &c.Prefix, text("/reprise"))
	read(f, "url", &c.URL, value.consoleURL)
	read(f, "trace_url", &c.TraceURL, text("https://traces.example.com/trace/{trace_id}"))
	f.with("management", func(x value) {
		if embedded {
			x.fail("management is for RabbitMQ, and the embedded broker needs no URL: remove it")
			return
		}
		if c.Management, _, _ = x.endpoint(); c.Management != "" {
			c.Management, _ = x.files(c.Management, "cacertfile")
		}
	})
	f.finish()
	return c
}
