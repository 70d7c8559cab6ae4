package config

import (
	"cmp"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the machine may have no time zones

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// Outbox configures the messages that leave later.
type Outbox struct {
	Store  string // sqlite:PATH, or the URL of a PostgreSQL or MySQL database
	App    string // "": the default
	Prefix string // "": the default
	Tables []outbox.Table

	At Position // position of the store, for startup errors
}

// Cron is a periodic message.
type Cron struct {
	outbox.Entry
	At Position
}

const (
	exampleOutbox = storeSQLite + "outbox.db"
	storeMySQL    = "mysql://user:password@host/database"
)

// outboxAndCron reads the keys outbox, cron and schedule. It must read them after the workers.
func (f *fields) outboxAndCron(c *Config, e *exchanges) {
	kept := read(f, "outbox", &c.Outbox, func(x value) (*Outbox, bool) { return x.outbox(e) })
	for _, list := range f.all("cron") {
		for _, item := range list.items(`a list such as - {name: nightly, spec: "30 2 * * *", queue: reports, body: "{}"}`) {
			x, ok := item.fields("an entry of cron")
			if !ok {
				continue
			}
			entry := x.cron(e)
			x.finish()
			if i := slices.IndexFunc(c.Cron, func(other Cron) bool { return other.Name == entry.Name }); i >= 0 && entry.Name != "" {
				f.failAt(entry.At, "entry %s of cron already exists %s: use another name", brief.Quoted(entry.Name), c.Cron[i].At.from(entry.At))
			}
			c.Cron = append(c.Cron, entry)
		}
	}
	if len(c.Cron) > 0 && !kept {
		f.missing("cron requires an outbox: add outbox: "+exampleOutbox, "outbox")
	}
	if scheduled := f.with("schedule", func(x value) { c.Schedule = x.schedule(c.Workers, e) }); scheduled && !kept {
		f.missing("schedule requires an outbox: add outbox: "+exampleOutbox, "outbox")
	}
}

// schedule reads an exchange, or a mapping with an exchange and destinations.
func (v value) schedule(workers []Worker, e *exchanges) *outbox.IntakeConfig {
	s := &outbox.IntakeConfig{Exchange: outbox.DefaultExchange}
	exchange := func(x value) {
		if name, ok := x.text(outbox.DefaultExchange); ok && x.fits(name, maxName-200) && x.own(name) {
			s.Exchange = name
			x.unshared(*s, workers, e)
		}
	}
	if !v.isMapping() {
		exchange(v)
		return s
	}
	f, _ := v.fields("schedule")
	if !f.with("exchange", exchange) {
		v.unshared(*s, workers, e)
	}
	read(f, "destinations", &s.Destinations, list("a list such as [orders]", func(x value) (string, bool) {
		if x.kind() == "a string" && x.plain() == "" {
			return "", true // the default exchange
		}
		name, ok := amqpName("orders", 0)(x)
		if ok && (outbox.IntakeConfig{Exchange: s.Exchange, Destinations: []string{name}}).Validate() != nil {
			return "", x.fail("%s must not be %s, because this exchange belongs to schedule", x.name, brief.Quoted(name))
		}
		if ok {
			e.require(x, name)
		}
		return name, ok
	}))
	f.finish()
	return s
}

// unshared reports objects of an intake that the file uses otherwise.
func (v value) unshared(s outbox.IntakeConfig, workers []Worker, e *exchanges) {
	own := []string{s.Exchange, s.Exchange + ".expired", topology.FailedQueue(s.Exchange)}
	for _, w := range workers {
		if slices.Contains(own, w.Queue) {
			v.fail("%s declares the queue %s, and a worker consumes it: use another name", v.name, brief.Quoted(w.Queue))
		}
	}
	for _, x := range e.all {
		if slices.Contains(own[:2], x.Name) {
			x.failAt(x.keyAt, "exchange %s is declared by schedule: remove it", brief.Quoted(x.Name))
		}
	}
}

// outbox reads a store, or a mapping with a store.
func (v value) outbox(e *exchanges) (*Outbox, bool) {
	o := &Outbox{}
	v.short("outbox", "store", exampleOutbox, func(x value) {
		o.At = x.at
		if s := x.plain(); strings.HasPrefix(s, "mysql:") || strings.HasPrefix(s, "mariadb:") {
			o.Store, _ = x.mysqlURL()
		} else {
			o.Store, _ = x.store(exampleOutbox, storeMySQL)
		}
	}, func(f *fields) {
		dialect := outbox.SQLite // the only one that forbids a schema
		if store, ok := f.find("store"); ok && !strings.HasPrefix(store.expanded().plain(), storeSQLite) {
			dialect = outbox.PostgreSQL
		}
		setting := func(key, example string, into *string, wanted string, config func(string) outbox.Config) {
			read(f, key, into, func(x value) (string, bool) {
				s, ok := x.text(example)
				if ok && config(s).Validate() != nil {
					return "", x.fail("%s must be %s: got %s", x.name, wanted, brief.Quoted(s))
				}
				return s, ok
			})
		}
		setting("app", "shop", &o.App, "at most 60 bytes without a slash", func(s string) outbox.Config { return outbox.Config{Dialect: dialect, App: s} })
		setting("prefix", "shop_outbox_", &o.Prefix, "at most 40 lower-case letters, digits and underscores, with PostgreSQL after a schema and a dot",
			func(s string) outbox.Config { return outbox.Config{Dialect: dialect, Prefix: s} })
		names := map[string]bool{}
		read(f, "tables", &o.Tables, list("a list such as - {name: events, queue: orders}", func(x value) (outbox.Table, bool) {
			t, ok := x.table(cmp.Or(o.Prefix, outbox.DefaultPrefix), e)
			if ok && names[t.Name] {
				x.fail("table %s of outbox is listed twice, so each row would move by either entry: remove one", brief.Quoted(t.Name))
			}
			names[t.Name] = t.Name != ""
			return t, ok
		}))
	})
	return o, true
}

// table reads a table of another program. The columns of a destination replace its values.
func (v value) table(prefix string, e *exchanges) (t outbox.Table, ok bool) {
	f, ok := v.fields("a table of outbox")
	if !ok {
		return t, false
	}
	if !f.with("name", func(x value) {
		s, ok := x.text("events")
		t.Name = s
		switch bare := s[strings.LastIndex(s, ".")+1:]; {
		case ok && (outbox.Table{Name: s}).Validate() != nil:
			x.fail("%s must be at most 63 letters, digits and underscores, after an optional schema and a dot: got %s", x.name, brief.Quoted(s))
		case ok && strings.HasPrefix(strings.ToLower(bare), prefix[strings.LastIndex(prefix, ".")+1:]):
			x.fail("%s must not be a table of the outbox: got %s", x.name, brief.Quoted(s))
		}
	}) {
		f.missing("a table of outbox needs a name: add name: events", "name")
	}
	for _, c := range []struct {
		key  string
		into *string
	}{
		{"id_column", &t.IDColumn},
		{"body_column", &t.BodyColumn},
		{"exchange_column", &t.ExchangeColumn},
		{"key_column", &t.RoutingKeyColumn},
		{"order_key_column", &t.KeyColumn},
		{"message_id_column", &t.MessageIDColumn},
	} {
		read(f, c.key, c.into, func(x value) (string, bool) {
			s, ok := x.text(strings.TrimSuffix(c.key, "_column"))
			if ok && (outbox.Table{Name: "x", IDColumn: s}).Validate() != nil {
				return "", x.fail("%s must be the name of a column, at most 63 letters, digits and underscores: got %s", x.name, brief.Quoted(s))
			}
			return s, ok
		})
	}
	toQueue, toExchange := f.destination(&t.Message, "orders", e)
	if !toQueue && !toExchange && t.ExchangeColumn == "" && t.RoutingKeyColumn == "" {
		f.missing("a table of outbox needs a destination: add queue: NAME, exchange: NAME, or key_column: COLUMN", "queue", "exchange", "exchange_column", "key_column")
	}
	if toQueue {
		f.refuse("is the routing key for an exchange: remove queue or key", "key")
	} else {
		read(f, "key", &t.Message.RoutingKey, value.routingKey)
	}
	read(f, "content_type", &t.Message.ContentType, property("application/json"))
	f.finish()
	return t, true
}

func (v value) mysqlURL() (string, bool) {
	s, ok := v.address(storeMySQL)
	if !ok {
		return "", false
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", v.fail("%s is not a URL; write %s, with special characters of the password percent-encoded (@ is %%40, / is %%2F)", v.name, storeMySQL)
	case u.Scheme != "mysql" || u.Host == "" && u.Query().Get("socket") == "":
		return "", v.fail("%s must start with mysql:// and a host; write %s", v.name, storeMySQL)
	case strings.Trim(u.Path, "/") == "":
		return "", v.fail("%s must have a database; write %s", v.name, storeMySQL)
	}
	return s, true
}

// cron reads a periodic message.
func (f *fields) cron(e *exchanges) (c Cron) {
	c.At = f.at
	if !f.with("name", func(x value) {
		c.At = x.at
		if c.Name, _ = x.text("nightly"); c.Name != "" && (outbox.Entry{Name: c.Name, Spec: "@daily"}).Validate() != nil {
			x.fail("%s must have at most 60 bytes and no slash: got %s", x.name, brief.Quoted(c.Name))
		}
	}) {
		f.missing("an entry of cron needs a name: add name: nightly", "name")
	}
	f.times(&c)
	toQueue, toExchange := f.destination(&c.Message, "reports", e)
	if !toQueue && !toExchange {
		f.missing("an entry of cron needs a destination: add queue: NAME, or exchange: NAME and key: ROUTING-KEY", "queue", "exchange")
	}
	if toExchange {
		read(f, "key", &c.Message.RoutingKey, value.routingKey)
	} else {
		f.refuse("is the routing key for an exchange: add exchange: NAME, or remove key", "key")
	}
	f.payload(&c)
	f.with("headers", func(x value) {
		table, _ := arguments()(x)
		c.Message.Headers = table
	})
	read(f, "content_type", &c.Message.ContentType, property("application/json"))
	read(f, "type", &c.Message.Type, property("report"))
	read(f, "order_key", &c.Key, property("reports"))
	read(f, "missed", &c.Missed, choose(is("latest", outbox.MissedLatest), is("all", outbox.MissedAll)))
	read(f, "catch_up", &c.CatchUp, duration(time.Minute))
	return c
}

// times reads the specification of the times, with its time zone.
func (f *fields) times(c *Cron) {
	check := func(x value, spec string) bool {
		err := outbox.Entry{Name: "x", Spec: spec}.Validate()
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		return err == nil || x.fail("%s: %v", x.name, err)
	}
	zone := ""
	f.with("zone", func(x value) {
		name, ok := x.text("Europe/Berlin")
		if zone = "CRON_TZ=" + name + " "; ok && (outbox.Entry{Name: "x", Spec: zone + "@daily"}).Validate() != nil {
			x.fail("%s must be a time zone such as Europe/Berlin: got %s", x.name, brief.Quoted(name))
			zone = ""
		}
	})
	if !f.with("spec", func(x value) {
		s, ok := x.text(`"30 2 * * *"`)
		if ok && zone != "" && strings.HasPrefix(s, "CRON_TZ=") {
			x.fail("spec has a time zone, and zone has another one: keep zone")
		} else if ok && check(x, s) {
			c.Spec = zone + s
		}
	}) {
		f.missing(`an entry of cron needs its times: add spec: "30 2 * * *" (minute, hour, day of the month, month, day of the week)`, "spec")
	}
}

// property reads a property of a message.
func property(example string) reader[string] {
	return func(x value) (string, bool) {
		s, ok := x.text(example)
		return s, ok && x.fits(s, 0)
	}
}

// destination reads a queue or an exchange, and reports which of them the mapping has.
func (f *fields) destination(to *reprise.Message, example string, e *exchanges) (toQueue, toExchange bool) {
	toQueue = read(f, "queue", &to.RoutingKey, amqpName(example, 0))
	toExchange = f.with("exchange", func(x value) {
		if name, ok := amqpName("events", 0)(x); ok {
			to.Exchange = name
			e.require(x, name)
		}
	})
	if toQueue && toExchange {
		f.failAtKey("exchange", "%s must have a queue or an exchange, not both; remove one of the two", f.owner)
	}
	return toQueue, toExchange
}

// maxPayload is the maximum size of the file with a body.
const maxPayload = 16 << 20

// payload reads the body, or the file with the body.
func (f *fields) payload(c *Cron) {
	written := f.with("body", func(x value) {
		s, _ := x.word()
		c.Message.Body = []byte(s)
	})
	fromFile := f.with("file", func(x value) {
		name, ok := path("report.json")(x)
		if !ok {
			return
		}
		info, err := os.Stat(name)
		switch {
		case err == nil && !info.Mode().IsRegular():
			x.fail("%s must be a file: %s is not", x.name, name)
		case err == nil && info.Size() > maxPayload:
			x.fail("%s must have at most %d bytes: got %d", x.name, maxPayload, info.Size())
		case err == nil:
			c.Message.Body, err = os.ReadFile(name)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			x.fail("file %s not found: create it, or write body: with the body", name)
		case err != nil:
			x.fail("%s: %v", x.name, err)
		}
	})
	if written && fromFile {
		f.failAtKey("file", "an entry of cron must have a body or a file, not both; remove one of the two")
	}
}
